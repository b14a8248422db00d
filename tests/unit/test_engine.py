import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runners import ConfigInvalid, Engine, EngineOptions, ModelOptions, ModelUnavailable, Unsupported
from tests import models
from tests.processes import thread_names
from tests.serving import ROOT

TOLERANT = EngineOptions(exit_on_error=False)


def add_sub(repository: Path, name: str, text: str | None = None, versions: tuple[int, ...] = (1,)) -> None:
    models.write(repository, name, dict.fromkeys(versions, models.add_sub(["batch", 16])), text)


def test_an_engine_loads_all_models_of_a_repository(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        add_sub(tmp_path, name)
    with Engine(tmp_path) as engine:
        assert sorted((m.name, m.version, m.state) for m in engine.models()) == [
            ("a", "1", "READY"),
            ("b", "1", "READY"),
            ("c", "1", "READY"),
        ]
        assert engine.failures == {}


def test_an_engine_serves_a_bare_file_under_its_stem(tmp_path: Path) -> None:
    path = tmp_path / "plus.onnx"
    path.write_bytes(models.plus_constant(1).SerializeToString())
    with Engine(path) as engine:
        assert [(m.name, m.version, m.state) for m in engine.models()] == [("plus", "1", "READY")]


def test_a_bucket_needs_what_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    reason = r"model repository 's3://bucket/models': buckets are read by obstore, .*: pip install 'kushi\[buckets\]'"
    with pytest.raises(ConfigInvalid, match=reason):
        Engine("s3://bucket/models")


def test_a_place_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="expected a directory, or a URL that begins with s3://"):
        Engine("hdfs://host/models")


def test_every_version_of_the_policy_is_loaded(tmp_path: Path) -> None:
    add_sub(tmp_path, "m", "version_policy { all { } }", versions=(1, 3))
    with Engine(tmp_path) as engine:
        assert sorted((m.name, m.version) for m in engine.models()) == [("m", "1"), ("m", "3")]


def test_a_model_that_fails_does_not_stop_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    add_sub(tmp_path, "good")
    models.write(tmp_path, "corrupt", b"\0" * 100)
    add_sub(tmp_path, "wrong", "max_batch_sise: 3")
    with caplog.at_level(logging.ERROR, "runners"), Engine(tmp_path, options=TOLERANT) as engine:
        assert set(engine.failures) == {"corrupt", "wrong"}
        states = {m.name: (m.version, m.state, m.reason) for m in engine.models()}
    assert states["good"] == ("1", "READY", "")
    assert states["corrupt"][:2] == ("1", "UNAVAILABLE")
    assert "corrupt/1/model.onnx" in states["corrupt"][2]
    assert "wrong/config.pbtxt:1:1" in states["wrong"][2]
    assert "failed to load 'corrupt' version 1: " in caplog.text
    assert "failed to load 'wrong': " in caplog.text


def test_a_file_that_cannot_be_read_is_named_without_the_number_of_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "m/1")

    add_sub(tmp_path, "m")
    monkeypatch.setattr("runners.control.reader.resolve", refuse)
    with Engine(tmp_path, options=TOLERANT) as engine:
        assert str(engine.failures["m"]) == "m/1: Permission denied"


def test_one_bad_version_fails_the_model(tmp_path: Path) -> None:
    good = models.add_sub(["batch", 16])
    models.write(tmp_path, "m", {1: good, 2: b"not a model"}, "version_policy { all { } }")
    with Engine(tmp_path, options=TOLERANT) as engine:
        assert list(engine.failures) == ["m"]
        assert not any(m.state == "READY" for m in engine.models())


def test_a_name_in_two_repositories_is_a_failure(tmp_path: Path) -> None:
    for repository in ("one", "two"):
        add_sub(tmp_path / repository, "m")
    with Engine(tmp_path / "one", tmp_path / "two", options=TOLERANT) as engine:
        assert "is in more than one repository" in str(engine.failures["m"])


def test_a_repository_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match=r"model repository '.*nowhere' not found"):
        Engine(tmp_path / "nowhere")


def test_an_empty_repository_is_an_engine_without_models(tmp_path: Path) -> None:
    with Engine(tmp_path) as engine:
        assert engine.models() == []


def test_two_engines_live_in_one_process(tmp_path: Path) -> None:
    for name in ("a", "b"):
        add_sub(tmp_path / name, name)
    with Engine(tmp_path / "a") as first, Engine(tmp_path / "b") as second:
        assert [m.name for m in first.models()] == ["a"]
        assert [m.name for m in second.models()] == ["b"]


def test_closing_twice_is_allowed(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    engine.close()
    engine.close()


def test_loading_logs_its_progress(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    add_sub(tmp_path, "m")
    with (
        caplog.at_level(logging.INFO, "runners"),
        Engine(tmp_path, options=EngineOptions(models=ModelOptions(load_threads=1))),
    ):
        pass
    assert "loading: m:1" in caplog.text
    assert "successfully loaded 'm' version 1" in caplog.text


def test_without_auto_completion_a_model_needs_a_configuration(tmp_path: Path) -> None:
    add_sub(tmp_path, "m")
    with Engine(
        tmp_path, options=EngineOptions(models=ModelOptions(strict_config=True), exit_on_error=False)
    ) as engine:
        assert "not found, and completing it from the model is disabled" in str(engine.failures["m"])


def test_another_process_is_told_that_the_engine_is_not_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine(tmp_path) as engine:
        owner = os.getpid()
        with monkeypatch.context() as forked:
            forked.setattr(os, "getpid", lambda: owner + 1)
            with pytest.raises(Unsupported, match=f"belongs to process {owner} and does not work in its forked child"):
                engine.models()
            engine.close()
        assert engine.models() == []


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_is_none_is_refused(tmp_path: Path, port: int) -> None:
    with Engine(tmp_path) as engine:
        for door in (engine.serve_http, engine.serve_metrics):
            with pytest.raises(ConfigInvalid, match=f"port is {port}, expected 0 to 65535"):
                door(port=port)


@pytest.mark.clock
def test_models_that_cannot_be_loaded_are_all_named_and_nothing_is_left(tmp_path: Path) -> None:
    add_sub(tmp_path, "good")
    models.write(tmp_path, "corrupt", b"\0" * 100)
    add_sub(tmp_path, "wrong", "max_batch_sise: 3")
    before = thread_names(os.getpid())
    with pytest.raises(ModelUnavailable) as raised:
        Engine(tmp_path)
    text = str(raised.value)
    assert text.startswith("2 models failed to load (EngineOptions(exit_on_error=False) serves the others):\n")
    assert [line.split(":")[0] for line in text.splitlines()[1:]] == ["'corrupt'", "'wrong'"]
    assert "corrupt/1/model.onnx" in text
    assert "wrong/config.pbtxt:1:1" in text
    assert isinstance(raised.value.__cause__, ConfigInvalid)
    left = [name for thread, name in thread_names(os.getpid()).items() if thread not in before]
    assert not [name for name in left if name.startswith("kushi")], left


def test_the_one_model_that_cannot_be_loaded_is_the_error_s(tmp_path: Path) -> None:
    add_sub(tmp_path, "wrong", "max_batch_sise: 3")
    with pytest.raises(ModelUnavailable, match=r"model 'wrong' failed to load: .*config\.pbtxt:1:1") as raised:
        Engine(tmp_path)
    assert raised.value.model == "wrong"


def test_a_model_to_load_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match="model 'nowhere' failed to load: failed to load 'nowhere', failed to"):
        Engine(tmp_path, options=EngineOptions(models=ModelOptions(control="explicit", load=("nowhere",))))


def test_a_program_that_does_not_ask_for_the_log_has_none(tmp_path: Path) -> None:
    add_sub(tmp_path, "m")
    program = f"from runners import Engine\nwith Engine({str(tmp_path)!r}) as engine: print(*engine.models())"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr == ""
    assert "READY" in done.stdout
