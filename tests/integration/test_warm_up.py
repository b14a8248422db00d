"""`model_warmup`: every instance executes its samples before a version turns ready, and nobody counts that."""

from __future__ import annotations

import re
import shutil
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from kushi_native import Core, PythonModel, register_errors
from tritonclient.http import InferenceServerClient, InferInput

from runners import Engine, EngineOptions
from runners.errors import ConfigInvalid, InternalError, factories
from runners.repository.normalize import fill_defaults, fill_instance_groups
from runners.repository.specification import specify
from runners.repository.warm_up import warm_up_samples
from tests import hostile_models, models
from tests.bystander import undisturbed
from tests.integration.test_hostile_models import change, reasons
from tests.python_models import ADD_SUB
from tests.raw_http import frame
from tests.unit.text import config
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.conftest import StartServer
    from tests.serving import Server

    Array = NDArray[Any]

IO = ([("INPUT0", "FP32", [-1])], [("OUTPUT0", "FP32", [-1])])


def sample(given: str, *, batch_size: int = 1, count: int = 1, key: str = "INPUT0") -> str:
    return f"""
        model_warmup {{
            name: "w" batch_size: {batch_size} count: {count} inputs {{ key: "{key}" value {{ {given} }} }}
        }}
    """


ZEROS = "data_type: TYPE_FP32 dims: [ 3 ] zero_data: true"


def write(repository: Path, extra: str) -> None:
    models.write(repository, "m", models.identity("FP32"), models.config("m", *IO, max_batch_size=4, extra=extra))


@pytest.fixture
def explicit(repository: Path, start_server: StartServer) -> Server:
    models.write_add_sub(repository)
    return start_server(repository, "--model-control-mode=explicit", "--load-model=add_sub")


def test_the_statistics_of_a_model_that_was_warmed_up_begin_with_its_first_client(
    repository: Path, start_server: StartServer
) -> None:
    samples = sample(ZEROS, batch_size=4, count=3)
    samples += sample("data_type: TYPE_FP32 dims: [ 7 ] random_data: true")
    samples += sample('data_type: TYPE_FP32 dims: [ 2 ] input_data_file: "raw"', batch_size=2)
    write(repository, samples + "instance_group { count: 2 }")
    (repository / "m" / "warmup").mkdir()
    (repository / "m" / "warmup" / "raw").write_bytes(np.array([1, 2], np.float32).tobytes())
    server = start_server(repository)
    client = InferenceServerClient(server.url.removeprefix("http://"))

    def counted() -> tuple[int, int, int]:
        (entry,) = client.get_inference_statistics("m")["model_stats"]
        return entry["execution_count"], entry["inference_count"], entry["last_inference"]

    assert client.is_model_ready("m")
    assert counted() == (0, 0, 0)
    given = InferInput("INPUT0", [1, 2], "FP32").set_data_from_numpy(np.array([[3, 4]], np.float32))
    assert client.infer("m", [given]).as_numpy("OUTPUT0").tolist() == [[3, 4]]
    assert counted()[:2] == (1, 1)
    client.close()


REFUSED = {
    "a shape": (
        sample("data_type: TYPE_FP32 dims: [ 3, 1 ] zero_data: true"),
        "unexpected shape for input 'INPUT0' for model 'm'. Expected [-1,-1], got [1,3,1].",
    ),
    "a data type": (
        sample("data_type: TYPE_INT32 dims: [ 3 ] zero_data: true"),
        "inference input 'INPUT0' data-type is 'INT32', but model 'm' expects 'FP32'",
    ),
    "a name": (sample(ZEROS, key="X"), "unexpected inference input 'X' for model 'm'"),
    "no input": ('model_warmup { name: "w" batch_size: 1 }', "expected 1 inputs but got 0 inputs for model 'm'"),
    "a batch": (
        sample(ZEROS, batch_size=5),
        "failed to run warmup sample 'w': batch size 5 for 'm', max allowed is 4; ",
    ),
}


@pytest.mark.parametrize(("samples", "text"), REFUSED.values(), ids=REFUSED)
def test_a_sample_that_does_not_fit_the_model_fails_its_load(
    samples: str, text: str, explicit: Server, repository: Path
) -> None:
    write(repository, samples)
    refused = change(explicit, "m", "load")
    assert (refused.status, text in refused.error) == (400, True), refused
    ((state, reason),) = reasons(explicit, "m")
    assert state == "UNAVAILABLE"
    assert text.strip() in reason


def test_a_sample_that_fails_leaves_what_serves_as_it_is(explicit: Server, repository: Path) -> None:
    models.write_gather(repository)
    assert change(explicit, "gather", "load").status == 200
    configuration = repository / "gather" / "config.pbtxt"
    index = 'data_type: TYPE_INT64 dims: [ 1 ] input_data_file: "index"'
    configuration.write_text(configuration.read_text() + sample(index, key="INDEX"))
    (repository / "gather" / "warmup").mkdir()
    (repository / "gather" / "warmup" / "index").write_bytes(np.array([1000], np.int64).tobytes())
    refused = change(explicit, "gather", "load")
    assert refused.status == 400
    assert re.search(r"failed to run warmup sample 'w': .*1000", refused.error), refused
    assert explicit.get("/v2/models/gather/ready").status == 200


def test_an_unload_gives_up_a_warm_up_that_never_ends(explicit: Server, repository: Path) -> None:
    one = sample("data_type: TYPE_FP32 dims: [ 1 ] zero_data: true")
    # for a model with its number of threads no run is measured first
    extra = f"{models.ONE_INSTANCE} {models.ONE_THREAD}"
    models.write(repository, "m", hostile_models.endless(), f"max_batch_size: 4 {one} {extra}")
    with undisturbed(explicit), explicit.connect() as loading:
        loading.send(frame("POST", "/v2/repository/models/m/load"))
        explicit.log.wait_for(re.compile(r"still warming up 'm' version 1: sample 'w', run 1 of 1"), 30)
        assert reasons(explicit, "m") == [("LOADING", "")]
        assert change(explicit, "m", "unload").status == 200
        assert "given up: the model is to be unloaded" in loading.receive().error
    shutil.rmtree(repository / "m")
    write(repository, models.ONE_INSTANCE)
    eventually(lambda: change(explicit, "m", "load").status == 200, "the thread of the warm-up has ended")


class Recording:
    """An engine of one instance that keeps the inputs of its batches."""

    concurrent = False

    def __init__(self) -> None:
        self.batches: list[Array] = []

    def execute(self, inputs: list[Any], wanted: list[bool]) -> list[Array]:
        self.batches.append(np.array(inputs[0]))
        return [inputs[0], inputs[1]]


@pytest.fixture
def core() -> Iterator[Core]:
    register_errors(factories())
    core = Core(EngineOptions().to_json(()))
    yield core
    core.close()


def two_instances(core: Core, engines: list[Any], tmp_path: Path) -> tuple[Any, Any]:
    """The version that was started, and its samples"""
    given = "value { data_type: TYPE_FP32 dims: [ 2 ] random_data: true }"
    text = f"""
        {ADD_SUB} instance_group {{ count: {len(engines)} kind: KIND_CPU }}
        model_warmup {{
            name: "w" batch_size: 3 count: 2 inputs {{ key: "A" {given} }} inputs {{ key: "B" {given} }}
        }}
    """
    complete = fill_defaults(fill_instance_groups(config(text)))
    specification = specify(complete, version=1, scalars=(), inline=False, load_seconds=0.0)
    started = core.start("m", specification.model_dump_json(), [PythonModel(engine) for engine in engines])
    return started, warm_up_samples(tmp_path, complete)


def test_each_instance_gets_each_sample_as_one_batch_as_often_as_it_says(core: Core, tmp_path: Path) -> None:
    engines = [Recording(), Recording()]
    started, samples = two_instances(core, engines, tmp_path)
    started.warm_up(samples)
    rows = np.frombuffer(samples[0].inputs[0].data, np.float32)
    for engine in engines:
        assert [batch.shape for batch in engine.batches] == [(3, 2), (3, 2)]
        np.testing.assert_array_equal(engine.batches[0], np.stack([rows] * 3))
    core.publish("m", [started])
    assert [row[:3] for row in core.index()] == [("m", "1", "READY")]


def test_a_version_is_published_once(core: Core, tmp_path: Path) -> None:
    started, _ = two_instances(core, [Recording(), Recording()], tmp_path)
    core.publish("m", [started])
    with pytest.raises(InternalError, match="model 'm' was handed over before"):
        core.publish("m", [started])


class Held(Recording):
    """One that executes when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.may = threading.Event()

    def execute(self, inputs: list[Any], wanted: list[bool]) -> list[Array]:
        self.entered.set()
        assert self.may.wait(30)
        return super().execute(inputs, wanted)


def test_instances_are_warmed_up_at_the_same_time(core: Core, tmp_path: Path) -> None:
    engines = [Held(), Held()]
    started, samples = two_instances(core, engines, tmp_path)
    warming = threading.Thread(target=started.warm_up, args=(samples,))
    warming.start()
    assert all(engine.entered.wait(30) for engine in engines)
    for engine in engines:
        engine.may.set()
    warming.join()
    assert [len(engine.batches) for engine in engines] == [2, 2]


def test_what_an_engine_raises_is_the_reason(core: Core, tmp_path: Path) -> None:
    class Broken(Recording):
        def execute(self, inputs: list[Any], wanted: list[bool]) -> list[Array]:
            raise ValueError("bad weather")

    started, samples = two_instances(core, [Recording(), Broken()], tmp_path)
    with pytest.raises(ConfigInvalid, match=r"failed to run warmup sample 'w': .*raised ValueError: bad weather; "):
        started.warm_up(samples)


MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.seen = []

    def execute(self, requests):
        self.seen.append(len(requests))
        seen = np.array([self.seen[:3]], np.int32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SEEN", seen)]) for _ in requests]
"""


def test_each_process_of_a_python_model_executes_its_samples(tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "model.py").write_text(MODEL)
    (tmp_path / "m" / "config.pbtxt").write_text(f"""
        backend: "python" max_batch_size: 4 instance_group {{ count: 2 kind: KIND_CPU }}
        input {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] }}
        output {{ name: "SEEN" data_type: TYPE_INT32 dims: [ -1 ] }}
        {sample(ZEROS, batch_size=1, count=1)} {sample(ZEROS, batch_size=4, count=1)}
    """)
    with Engine(tmp_path) as engine:
        for _ in range(4):
            seen = engine.infer("m", np.zeros((1, 2), np.float32))["SEEN"]
            assert seen.tolist() == [[1, 4, 1]]
