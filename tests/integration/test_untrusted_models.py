"""Models that nobody vouches for: one that would end the server ends a process of its own, and is refused."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import onnx
import pytest

from runners import Engine, EngineOptions, LogOptions, ModelOptions
from runners.backends import untrusted
from runners.backends.isolation_messages import Order
from tests import hostile_models, models
from tests.integration.python_models import models as python_models

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer

NONE = "--model-trust=none"
TRIED = "is tried in a process of its own first"
SUFFIX = "ended the process that tried it, so that it is not loaded (--model-trust=none): m_trial: it was killed by"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/kushi/trials"


def write(repository: Path, *, at_load: bool, name: str = "m") -> Path:
    return models.write(repository, name, hostile_models.ending(at_load=at_load))


def options(*, trusted: bool = False) -> EngineOptions:
    trust = ModelOptions(trust="all" if trusted else "none")
    return EngineOptions(models=trust, exit_on_error=False, log=LogOptions(info=True))


@pytest.mark.parametrize("at_load", [True, False])
def test_one_that_ends_its_process_fails_alone(repository: Path, start_server: StartServer, *, at_load: bool) -> None:
    models.write_add_sub(repository)
    write(repository, at_load=at_load)
    server = start_server(repository, NONE, "--exit-on-error=false", "--strict-readiness=false")
    rows = {row["name"]: row for row in server.post("/v2/repository/index", b"").json()}
    assert rows["add_sub"]["state"] == "READY"
    assert rows["m"]["state"] == "UNAVAILABLE"
    assert f"'{repository}/m/1/model.onnx' {SUFFIX} signal 6 (SIGABRT" in rows["m"]["reason"]
    assert server.process.poll() is None


@pytest.mark.parametrize(
    ("beside", "text"),
    [
        ("link", "has more than 1000 files: --model-trust=none reads them all"),
        ("sparse", "has more than 274877906944 bytes beside it: --model-trust=none reads them all"),
    ],
)
def test_what_is_beside_one_is_bounded(
    repository: Path, monkeypatch: pytest.MonkeyPatch, beside: str, text: str
) -> None:
    models.write_add_sub(repository)
    version = repository / "add_sub" / "1"
    if beside == "link":
        monkeypatch.setattr(untrusted, "_MOST_FILES", 1000)
        (version / "everything").symlink_to("/usr")
    else:
        with (version / "large").open("wb") as file:
            file.truncate(300 << 30)
    with Engine(repository, options=options()) as engine:
        assert text in str(engine.failures["add_sub"])


def test_a_file_of_the_kernel_is_not_read(repository: Path) -> None:
    models.write_add_sub(repository)
    version = repository / "add_sub" / "1"
    # it says nothing about its size, and waits for whoever reads it
    (version / "messages").symlink_to("/proc/kmsg")
    with Engine(repository, options=options()) as engine:
        assert not engine.failures


@pytest.mark.parametrize(
    "model",
    [
        hostile_models.ending_after_an_error(),
        hostile_models.ending_with_rows(2),
        hostile_models.ending_with_rows(8),
        hostile_models.ending_with_rows(1, "BF16"),
    ],
    ids=["after an error", "two rows", "many rows", "BF16"],
)
def test_it_is_asked_what_clients_may_ask(model: onnx.ModelProto, repository: Path) -> None:
    models.write(repository, "m", model, "max_batch_size: 8")
    with Engine(repository, options=options()) as engine:
        assert SUFFIX in str(engine.failures["m"])


def test_what_a_load_refuses_is_tried_again(repository: Path, cache: Path) -> None:
    """Memory may have been missing, or a setting in its way: nobody has seen what it does when it is asked"""
    models.write_add_sub(repository)
    (repository / "add_sub/1/model.onnx").write_bytes(b"no model")
    with Engine(repository, options=options()) as engine:
        assert "add_sub" in engine.failures
    assert not cache.exists()


def test_one_that_cannot_be_asked_is_refused(repository: Path) -> None:
    models.write(repository, "m", models.identity("FP32", [1] * 65))
    with Engine(repository, options=options()) as engine:
        text = "has the input 'INPUT0' of more than 64 dimensions, which it cannot be asked with: it is not loaded"
        assert text in str(engine.failures["m"])


def test_a_write_whose_time_is_put_back_is_seen(repository: Path) -> None:
    models.write_add_sub(repository)
    path = repository / "add_sub/1/model.onnx"
    before, seen = path.stat(), untrusted._seen(path, ())
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert untrusted._has_changed(seen, path, ())


@pytest.mark.parametrize("stays", [False, True])
def test_nothing_is_known_of_files_that_change_while_they_are_tried(
    repository: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, *, stays: bool
) -> None:
    """The one that is tried is good, the one that lies there before and afterwards is not"""
    folder = write(repository, at_load=False)
    file, good = folder / "1" / "model.onnx", models.write(repository.parent, "good", models.identity("FP32", [1]))
    bad = file.read_bytes()
    tried = untrusted._tried

    def changed(order: Order, seconds: float) -> untrusted._Outcome:
        if file.read_bytes() == bad:
            shutil.copy(good / "1" / "model.onnx", file)
        outcome = tried(order, seconds)
        if not stays:
            file.write_bytes(bad)
        return outcome

    monkeypatch.setattr(untrusted, "_tried", changed)
    with Engine(repository, options=options()) as engine:
        # what was put there and has stayed is tried by itself
        assert ("m" in engine.failures) is not stays
        if not stays:
            assert "changes while it is tried" in str(engine.failures["m"])
    assert len(list(cache.glob("*"))) == int(stays)


def test_each_content_is_tried_once(repository: Path, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    models.write_add_sub(repository)
    file = write(repository, at_load=True) / "1" / "model.onnx"

    def tried() -> int:
        caplog.clear()
        with caplog.at_level("INFO", "runners"), Engine(repository, options=options()) as engine:
            assert set(engine.failures) == {"m"}
            assert SUFFIX in str(engine.failures["m"])
        return sum(TRIED in line for line in caplog.messages)

    assert tried() == 2
    assert sorted(len(one.read_text()) > 0 for one in cache.iterdir()) == [False, True]
    assert tried() == 0
    # a copy elsewhere is the same content, and is named by its own path
    copy = shutil.copytree(repository / "m", repository.parent / "other" / "m")
    with caplog.at_level("INFO", "runners"), Engine(copy.parent, options=options()) as engine:
        assert f"'{copy}/1/model.onnx' {SUFFIX}" in str(engine.failures["m"])
        assert str(repository / "m") not in str(engine.failures["m"])
    assert not [line for line in caplog.messages if TRIED in line]
    # the same model, but for a name in it
    changed = hostile_models.ending(at_load=True)
    changed.graph.name = "another"
    file.write_bytes(changed.SerializeToString())
    assert tried() == 1
    # another configuration is another model
    (repository / "m" / "config.pbtxt").write_text('parameters { key: "a" value { string_value: "b" } }')
    assert tried() == 1


def test_a_verdict_that_cannot_be_kept_is_found_again(
    repository: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    models.write_add_sub(repository)
    cache.parent.mkdir(parents=True)
    cache.write_text("no directory")
    with caplog.at_level("INFO", "runners"), Engine(repository, options=options()) as engine:
        assert not engine.failures
        assert sum(TRIED in line for line in caplog.messages) == 1
        assert "it will be tried again next time" in caplog.text


def test_what_a_load_refuses_is_refused_in_its_own_words(repository: Path) -> None:
    models.write_add_sub(repository)
    (repository / "add_sub/1/model.onnx").write_bytes(b"no model")
    reasons = []
    for trusted in (True, False):
        with Engine(repository, options=options(trusted=trusted)) as engine:
            reasons.append(str(engine.failures["add_sub"]))
    assert reasons[0] == reasons[1]
    assert "model.onnx" in reasons[0]


def test_weights_beside_a_model_are_part_of_its_content(repository: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = models.write(repository, "m", hostile_models.with_weights_in("weights"))
    (path / "1/weights").write_bytes(bytes(4096))
    for expected in (1, 0):
        caplog.clear()
        with caplog.at_level("INFO", "runners"), Engine(repository, options=options()) as engine:
            assert not engine.failures
        assert sum(TRIED in line for line in caplog.messages) == expected
    (path / "1/weights").write_bytes(bytes([1]) * 4096)
    caplog.clear()
    with caplog.at_level("INFO", "runners"), Engine(repository, options=options()):
        pass
    assert sum(TRIED in line for line in caplog.messages) == 1


def test_a_process_of_a_models_own_needs_no_trial(repository: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = repository / "p"
    (folder / "1").mkdir(parents=True)
    (folder / "1/model.py").write_text(
        "import triton_python_backend_utils as pb_utils\n\n\n"
        "class TritonPythonModel:\n    def execute(self, requests):\n"
        "        return [pb_utils.InferenceResponse([]) for _ in requests]\n"
    )
    (folder / "config.pbtxt").write_text(
        'backend: "python" input { name: "X" data_type: TYPE_FP32 dims: 1 } '
        'output { name: "Y" data_type: TYPE_FP32 dims: 1 }'
    )
    with caplog.at_level("INFO", "runners"), Engine(repository, options=options()) as engine:
        assert not engine.failures
    assert TRIED not in caplog.text


def test_a_version_that_is_a_link_to_another_is_tried_by_its_content(
    repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    models.write_add_sub(repository, "m")
    (repository / "m" / "2").symlink_to("1")
    with caplog.at_level("INFO", "runners"), Engine(repository, options=options()) as engine:
        assert not engine.failures
    write(repository.parent / "other", at_load=True)
    shutil.copy(repository.parent / "other" / "m" / "1" / "model.onnx", repository / "m" / "1" / "model.onnx")
    with Engine(repository, options=options()) as engine:
        assert SUFFIX in str(engine.failures["m"])


def test_code_that_would_run_in_the_server_is_refused(repository: Path) -> None:
    inside = 'parameters { key: "kushi.inprocess" value { string_value: "true" } }'
    python_models.write(repository, "m", python_models.ADD_SUB, python_models.ADD_SUB_CONFIG + inside)
    with Engine(repository, options=options()) as engine:
        assert "which --model-trust=none does not allow" in str(engine.failures["m"])
    with Engine(repository, options=options(trusted=True)) as engine:
        assert not engine.failures
