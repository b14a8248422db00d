"""What changes in how requests wait is taken over by versions that go on serving"""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from runners import Engine, KushiError
from tests.unit.control.polled import polled
from tests.unit.controlled import EXPLICIT, plus
from tests.waiting import eventually

BATCHES = 'backend: "onnxruntime" max_batch_size: 8 dynamic_batching {{ {} }} {}'


def declare(repository: Path, batching: str = "", more: str = "") -> None:
    (repository / "m" / "config.pbtxt").write_text(BATCHES.format(batching, more))


def answer(engine: Engine, value: int = 0, **options: object) -> int:
    given = {"INPUT0": np.full((1, 1), value, np.int32)}
    return int(engine.infer("m", given, **options)["OUTPUT0"][0, 0])  # type: ignore[arg-type] # as infer takes them


def count(engine: Engine) -> int:
    (row,) = engine.get_inference_statistics("m")["model_stats"]
    return int(row["inference_count"])


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    plus(tmp_path, text=BATCHES.format("", ""))
    with Engine(tmp_path, options=EXPLICIT) as engine:
        engine.load_model("m")
        assert answer(engine) == 1
        yield engine


@pytest.mark.parametrize(
    ("batching", "more"),
    [
        ("max_queue_delay_microseconds: 100 preferred_batch_size: [ 2, 4 ]", ""),
        ("priority_levels: 3 default_priority_level: 2", ""),
        ("default_queue_policy { max_queue_size: 3 default_timeout_microseconds: 9000000 }", ""),
        ("", 'parameters { key: "kushi.max_queue_bytes" value { string_value: "99999" } }'),
        ("", 'version_policy { all { } } parameters { key: "anything" value { string_value: "x" } }'),
    ],
)
def test_a_load_takes_over_what_changed_and_opens_nothing(
    tmp_path: Path, engine: Engine, caplog: pytest.LogCaptureFixture, batching: str, more: str
) -> None:
    declare(tmp_path, batching, more)
    caplog.set_level("INFO")
    engine.load_model("m")
    changes_more = "anything" in more
    assert count(engine) == (0 if changes_more else 1)
    assert ("stays, and takes over" in caplog.text) is not changes_more
    assert answer(engine, 4) == 5
    with Engine(tmp_path) as other:
        assert engine.get_model_config("m") == other.get_model_config("m")
    declare(tmp_path)
    engine.load_model("m")
    assert count(engine) == (0 if changes_more else 2)


def test_the_new_way_holds_at_once(tmp_path: Path, engine: Engine) -> None:
    declare(tmp_path, "max_queue_delay_microseconds: 600000000 preferred_batch_size: [ 3 ]")
    engine.load_model("m")
    found: list[int] = []
    asking = [threading.Thread(target=lambda value=value: found.append(answer(engine, value))) for value in (1, 2)]
    for thread in asking:
        thread.start()
    eventually(lambda: engine.get_inference_statistics("m")["model_stats"][0]["inference_count"] == 1, "they wait")
    assert found == []
    declare(tmp_path)
    engine.load_model("m")
    for thread in asking:
        thread.join()
    assert sorted(found) == [2, 3]
    assert count(engine) == 3


def test_what_cannot_be_taken_over_is_loaded_again(tmp_path: Path, engine: Engine) -> None:
    declare(tmp_path, "preserve_ordering: true")
    engine.load_model("m")
    assert (count(engine), answer(engine)) == (0, 1)
    (tmp_path / "m" / "config.pbtxt").write_text('backend: "onnxruntime" max_batch_size: 8')
    engine.load_model("m")
    assert (count(engine), answer(engine)) == (0, 1)


def python_model(repository: Path, code: str) -> Path:
    """Answers where its configuration goes"""
    version = repository / "m" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(code)
    return repository / "m" / "config.pbtxt"


COMPLETING = """
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.as_dict()["dynamic_batching"] = {"max_queue_delay_microseconds": 777}
        return config

    def execute(self, requests):
        return []
"""


def test_what_code_of_the_model_fills_in_is_asked_for_again(tmp_path: Path) -> None:
    config = python_model(tmp_path, COMPLETING)
    config.write_text(OF_PYTHON.format(""))
    with Engine(tmp_path, options=EXPLICIT) as engine:
        engine.load_model("m")
        config.write_text(OF_PYTHON.format("dynamic_batching { }"))
        engine.load_model("m")
        with Engine(tmp_path) as other:
            assert engine.get_model_config("m") == other.get_model_config("m")


def test_what_is_wrong_changes_nothing(tmp_path: Path, engine: Engine) -> None:
    before = engine.get_model_config("m")
    declare(tmp_path, "preferred_batch_size: [ 9 ]")
    with pytest.raises(KushiError, match="dynamic batching preferred size must be <= max batch size for m"):
        engine.load_model("m")
    assert (answer(engine), count(engine), engine.get_model_config("m")) == (1, 2, before)


def test_a_load_that_brings_the_configuration_changes_it_in_place_as_well(engine: Engine) -> None:
    config = '{"backend": "onnxruntime", "max_batch_size": 8, "dynamic_batching": {"priority_levels": 2, '
    engine.load_model("m", config=config + '"default_priority_level": 1}}')
    assert (count(engine), answer(engine, priority=2)) == (1, 1)
    assert engine.get_model_config("m")["dynamic_batching"]["priority_levels"] in {2, "2"}


def test_a_poll_takes_it_over_as_well(tmp_path: Path) -> None:
    plus(tmp_path, text=BATCHES.format("", ""))
    with polled(tmp_path) as one:
        assert one.answer() == 1
        declare(tmp_path, "max_queue_delay_microseconds: 100")
        one.look_twice()
        assert one.counts() == {"m:1": 1}
        assert "max_queue_delay_microseconds" in one.engine.get_model_config("m")["dynamic_batching"]


COUNTING = """
import os
import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        rows = [pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", one * 0 + os.getpid())]) for one in rows]
"""
OF_PYTHON = """
backend: "python" max_batch_size: 8 {}
input {{ name: "INPUT0" data_type: TYPE_INT32 dims: 1 }}
output {{ name: "OUTPUT0" data_type: TYPE_INT32 dims: 1 }}
"""


def test_the_process_of_a_python_model_goes_on(tmp_path: Path) -> None:
    config = python_model(tmp_path, COUNTING)
    config.write_text(OF_PYTHON.format("dynamic_batching { }"))
    with Engine(tmp_path, options=EXPLICIT) as engine:
        engine.load_model("m")
        first = answer(engine)
        assert first != os.getpid()
        config.write_text(OF_PYTHON.format("dynamic_batching { max_queue_delay_microseconds: 50 priority_levels: 0 }"))
        engine.load_model("m")
        assert (answer(engine), count(engine)) == (first, 2)
        # with or without batches at all is another thing
        config.write_text(OF_PYTHON.format(""))
        engine.load_model("m")
        assert (answer(engine) != first, count(engine)) == (True, 1)


def test_nobody_who_asks_notices(tmp_path: Path, engine: Engine) -> None:
    is_over = threading.Event()
    wrong: list[str] = []
    answers = 0
    lock = threading.Lock()

    def ask(start: int) -> None:
        nonlocal answers
        value = start
        while not is_over.is_set():
            value += 1
            try:
                found = answer(engine, value)
            except KushiError as error:
                wrong.append(str(error))
                return
            with lock:
                answers += 1
            if found != value + 1:
                wrong.append(f"{value} was answered with {found}")

    asking = [threading.Thread(target=ask, args=(1000 * number,)) for number in range(6)]
    for thread in asking:
        thread.start()
    ways = (
        "max_queue_delay_microseconds: 300 preferred_batch_size: [ 4 ]",
        "priority_levels: 4 default_priority_level: 3",
        "",
        "preferred_batch_size: [ 1 ]",
        "default_queue_policy { max_queue_size: 100 }",
    )
    for turn in range(40):
        declare(tmp_path, ways[turn % len(ways)])
        engine.load_model("m")
    is_over.set()
    for thread in asking:
        thread.join()
    assert wrong == []
    assert count(engine) == answers + 1


def test_an_ensemble_stays_as_it_is(tmp_path: Path, engine: Engine) -> None:
    (tmp_path / "e" / "1").mkdir(parents=True)
    (tmp_path / "e" / "config.pbtxt").write_text(
        'platform: "ensemble" max_batch_size: 8 '
        'input { name: "A" data_type: TYPE_INT32 dims: 1 } output { name: "B" data_type: TYPE_INT32 dims: 1 } '
        "ensemble_scheduling { step { model_name: 'm' model_version: -1 "
        "input_map { key: 'INPUT0' value: 'A' } output_map { key: 'OUTPUT0' value: 'B' } } }"
    )
    engine.load_model("e")
    given = {"A": np.zeros((1, 1), np.int32)}
    assert engine.infer("e", given)["B"].tolist() == [[1]]
    declare(tmp_path, "max_queue_delay_microseconds: 100")
    engine.load_model("m")
    assert engine.infer("e", given)["B"].tolist() == [[1]]
    (row,) = engine.get_inference_statistics("e")["model_stats"]
    assert row["inference_count"] == 2
