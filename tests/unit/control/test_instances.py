"""Instances come and go while the versions that have them serve"""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

from runners import Engine
from runners.control.instances import may_be_resized, resized
from runners.control.plan import Shared
from runners.repository.messages import ModelConfig
from tests.unit.control.polled import polled
from tests.unit.controlled import EXPLICIT, plus

ONE = 'backend: "onnxruntime" max_batch_size: 8 {}'
GROUP = "instance_group {{ kind: KIND_CPU count: {} }}"


def declare(repository: Path, groups: str) -> None:
    (repository / "m" / "config.pbtxt").write_text(ONE.format(groups))


def answer(engine: Engine) -> int:
    return int(engine.infer("m", {"INPUT0": np.zeros((1, 1), np.int32)})["OUTPUT0"][0, 0])


def count(engine: Engine) -> int:
    (row,) = engine.get_inference_statistics("m")["model_stats"]
    return int(row["inference_count"])


def stated(engine: Engine) -> list[tuple[str, int]]:
    return [(group["name"], group["count"]) for group in engine.get_model_config("m")["instance_group"]]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    plus(tmp_path, text=ONE.format(GROUP.format(1)))
    with Engine(tmp_path, options=EXPLICIT) as engine:
        engine.load_model("m")
        assert answer(engine) == 1
        yield engine


def test_instances_come_and_go_and_nothing_is_opened(
    tmp_path: Path, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for number in (4, 1, 3, 64):
        declare(tmp_path, GROUP.format(number))
        engine.load_model("m")
        assert stated(engine) == [("m_0", number)]
        assert f"version 1 stays, and has {number} instance(s)" in caplog.text
    declare(tmp_path, GROUP.format(2) + GROUP.format(3))
    engine.load_model("m")
    assert stated(engine) == [("m_0", 2), ("m_1", 3)]
    assert answer(engine) == 1
    assert count(engine) == 2
    assert "loading: m:1" not in caplog.text


@pytest.mark.parametrize(
    "groups",
    [
        GROUP.format(65),
        'instance_group { kind: KIND_CPU count: 2 rate_limiter { resources { name: "r" count: 1 } } }',
        GROUP.format(2) + 'parameters { key: "kushi.cores" value { string_value: "0" } }',
        GROUP.format(2) + 'parameters { key: "anything" value { string_value: "x" } }',
        "",
    ],
)
def test_other_changes_load_it_again(tmp_path: Path, engine: Engine, groups: str) -> None:
    declare(tmp_path, groups)
    engine.load_model("m")
    assert count(engine) == 0
    assert answer(engine) == 1


def test_what_is_wrong_keeps_what_serves(tmp_path: Path, engine: Engine) -> None:
    declare(tmp_path, GROUP.format(-1))
    with pytest.raises(Exception, match="expected 1 or more"):
        engine.load_model("m")
    assert stated(engine) == [("m_0", 1)]
    assert count(engine) == 1


def test_a_poll_changes_them_under_load(tmp_path: Path) -> None:
    plus(tmp_path, text=ONE.format(GROUP.format(1)))
    with polled(tmp_path) as one:
        engine = one.engine
        failures: list[BaseException] = []
        done = threading.Event()

        def ask() -> None:
            try:
                while not done.is_set():
                    assert answer(engine) == 1
            except BaseException as error:  # noqa: BLE001 - of the test
                failures.append(error)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for number in (3, 1, 2):
            declare(tmp_path, GROUP.format(number))
            one.look_twice()
            assert stated(engine) == [("m_0", number)]
        asked = count(engine)
        done.set()
        for thread in threads:
            thread.join()
        assert not failures
        assert asked > 0
        assert engine.get_model_metadata("m")["versions"] == ["1"]


def config(text: str) -> ModelConfig:
    return text_format.Parse('name: "m" backend: "onnxruntime" ' + text, ModelConfig())


@pytest.mark.parametrize(
    ("threads", "opened", "wished", "expected"),
    [
        # stated, or of a short model
        (3, 2, 4, True),
        (1, 2, 1, True),
        # as many as the others leave
        (4, 2, 4, False),
        (2, 4, 3, True),
        (1, 8, 16, True),
        (1, 8, 4, False),
    ],
)
def test_threads_stay_right(
    monkeypatch: pytest.MonkeyPatch, threads: int, opened: int, wished: int, *, expected: bool
) -> None:
    monkeypatch.setattr("runners.control.instances.cores_for_all", lambda _: 8)
    before, now = config(GROUP.format(opened)), config(GROUP.format(wished))
    serving = resized(before, before)
    assert may_be_resized(before, now, {1: serving}, {1: Shared(threads, opened, 64)}) is expected


@pytest.mark.parametrize(
    ("before", "wished", "expected"),
    [
        ("", GROUP.format(2), True),
        ("", "instance_group { count: 2 }", True),
        (GROUP.format(1), "instance_group { count: 2 }", False),
        (GROUP.format(1), "", False),
        (GROUP.format(1), "instance_group { kind: KIND_GPU count: 2 }", False),
    ],
)
def test_where_instances_run_stays(before: str, wished: str, *, expected: bool) -> None:
    serving = resized(config(before), config(before))
    assert may_be_resized(config(before), config(wished), {1: serving}, {1: Shared(7, 1, 64)}) is expected


def test_a_model_that_says_itself_how_many_there_are_is_loaded_again() -> None:
    before, now, serving = config(GROUP.format(1)), config(GROUP.format(2)), config(GROUP.format(5))
    assert not may_be_resized(before, now, {1: resized(serving, serving)}, {1: Shared(7, 5, 64)})
    assert not may_be_resized(before, now, {1: resized(before, before)}, {})


def test_a_version_that_was_opened_anew_is_known_anew(tmp_path: Path, engine: Engine) -> None:
    """Bound to cores, its instances cannot come and go any more."""
    cores = 'parameters { key: "kushi.cores" value { string_value: "0" } }'
    for groups in (GROUP.format(2) + cores, GROUP.format(3) + cores, GROUP.format(2)):
        declare(tmp_path, groups)
        engine.load_model("m")
        assert count(engine) == 0
        assert answer(engine) == 1
    declare(tmp_path, GROUP.format(4))
    engine.load_model("m")
    assert count(engine) == 1


def test_a_model_of_several_threads_is_loaded_again(tmp_path: Path, engine: Engine) -> None:
    """Each of its instances has a session of its own."""
    threads = 'parameters { key: "intra_op_thread_count" value { string_value: "3" } }'
    for number in (1, 2):
        declare(tmp_path, GROUP.format(number) + threads)
        engine.load_model("m")
        assert count(engine) == 0
        assert answer(engine) == 1
