"""Models of TensorFlow: in a process of their own, equal to TensorFlow."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tritonclient.http import InferenceServerClient, InferInput

from runners import Engine, EngineOptions, KushiError
from runners.backends import Placed
from runners.backends.tensorflow.backend import TensorFlowBackend
from runners.errors import EngineFailed
from runners.repository.config import parse
from runners.repository.layout import scan
from tests.cores import CORES, processes_on
from tests.processes import children
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tests.conftest import StartServer

TOLERANT: Final = EngineOptions(exit_on_error=False)
RUNTIME: Final = b"libtensorflow"
TYPES: Final[Mapping[str, Any]] = {
    "BOOL": tf.bool,
    "UINT8": tf.uint8,
    "UINT16": tf.uint16,
    "UINT32": tf.uint32,
    "UINT64": tf.uint64,
    "INT8": tf.int8,
    "INT16": tf.int16,
    "INT32": tf.int32,
    "INT64": tf.int64,
    "FP16": tf.float16,
    "FP32": tf.float32,
    "FP64": tf.float64,
    "BF16": tf.bfloat16,
    "BYTES": tf.string,
}


class Network(tf.Module):
    """Scores of four classes, and a signature that doubles."""

    def __init__(self) -> None:
        super().__init__()
        generator = np.random.default_rng(4)
        self.weights = tf.Variable(generator.standard_normal((8, 4)).astype(np.float32))

    @tf.function(input_signature=[tf.TensorSpec([None, 8], tf.float32, name="image")])
    def scores(self, image: Any) -> dict[str, Any]:  # noqa: ANN401 - TensorFlow has no types
        return {"scores": tf.nn.softmax(image @ self.weights), "largest": tf.reduce_max(image, axis=1, keepdims=True)}

    @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.float32, name="x")])
    def doubled(self, x: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
        return {"y": tf.debugging.assert_all_finite(x, "not finite") + x}

    def save(self, repository: Path, name: str, text: str = "", **signatures: Any) -> None:  # noqa: ANN401 - as above
        path = repository / name / "1" / "model.savedmodel"
        tf.saved_model.save(self, str(path), signatures=signatures or {"serving_default": self.scores})
        if text:
            (repository / name / "config.pbtxt").write_text(text)


class Same(tf.Module):
    """OUT = IN."""

    def __init__(self, dtype: Any) -> None:  # noqa: ANN401 - as above
        super().__init__()
        self._dtype = dtype

    def save(self, repository: Path, name: str, shape: list[int | None]) -> None:
        spec = tf.TensorSpec(shape, self._dtype, name="IN")
        function = tf.function(lambda IN: {"OUT": tf.identity(IN)}, input_signature=[spec])  # noqa: N803 - its name
        tf.saved_model.save(self, str(repository / name / "1" / "model.savedmodel"), {"serving_default": function})


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def image(rows: int) -> NDArray[np.float32]:
    return np.random.default_rng(rows).standard_normal((rows, 8), dtype=np.float32)


def test_a_saved_model_is_completed_from_its_signature_and_equals_tensorflow(tmp_path: Path) -> None:
    network = Network()
    network.save(tmp_path, "m")
    with Engine(tmp_path) as engine:
        config = engine.get_model_config("m")
        assert (config["backend"], config["platform"], config["max_batch_size"]) == (
            "tensorflow",
            "tensorflow_savedmodel",
            4,
        )
        for rows in (1, 3, 4):
            answer, expected = engine.infer("m", image(rows)), network.scores(image(rows))
            for name in ("scores", "largest"):
                assert np.abs(answer[name] - expected[name].numpy()).max() < 1e-6
        only = engine.infer("m", image(2), outputs=["largest"])
        assert list(only) == ["largest"]


def test_a_self_test_holds_it_against_tensorflow(tmp_path: Path) -> None:
    network = Network()
    network.save(tmp_path, "m", parameter("kushi.self_test", "random"))
    with Engine(tmp_path) as engine:
        said = engine.get_model_config("m")["parameters"]["kushi.self_tested"]["string_value"]
        assert said.startswith("64 requests are answered as by tensorflow alone, 4 of them also in one batch and")
        assert engine.infer("m", image(3))["scores"].shape == (3, 4)


def test_scalars_pass(tmp_path: Path) -> None:
    specs = [tf.TensorSpec([3], tf.float32, name="x"), tf.TensorSpec([], tf.float32, name="more")]

    class Total(tf.Module):
        @tf.function(input_signature=specs)
        def total(self, x: Any, more: Any) -> dict[str, Any]:  # noqa: ANN401 - TensorFlow has no types
            return {"y": tf.reduce_sum(x) + more}

    made = Total()
    tf.saved_model.save(made, str(tmp_path / "m/1/model.savedmodel"), {"serving_default": made.total})
    with Engine(tmp_path) as engine:
        sent = {"x": np.array([1, 2, 3], np.float32), "more": np.array([4], np.float32)}
        assert engine.infer("m", sent)["y"].tolist() == [10.0]


def test_a_saved_model_that_is_not_where_it_has_to_be_is_named_with_what_to_do(tmp_path: Path) -> None:
    for name in ("empty", "flat"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text('platform: "tensorflow_savedmodel"')
    (tmp_path / "empty/1/model.savedmodel").mkdir()
    (tmp_path / "flat/1/saved_model.pb").touch()
    with Engine(tmp_path, options=EngineOptions(exit_on_error=False)) as engine:
        failures = {name: str(error) for name, error in engine.failures.items()}
    assert "1/model.savedmodel' has no 'saved_model.pb'" in failures["empty"]
    assert "unable to find" in failures["flat"]
    assert "1' has to be in it" in failures["flat"]


@pytest.mark.clock
def test_its_runtime_is_not_in_the_process_of_the_server(tmp_path: Path, start_server: StartServer) -> None:
    Network().save(tmp_path, "m")
    server = start_server(tmp_path)
    assert RUNTIME not in maps(server.pid)
    given = InferInput("image", [2, 8], "FP32").set_data_from_numpy(image(2))
    with InferenceServerClient(server.url.removeprefix("http://")) as client:
        answer = client.infer("m", [given]).as_numpy("scores")
        assert np.abs(answer.sum(axis=1) - 1).max() < 1e-6
        workers = [pid for pid in children(server.pid) if RUNTIME in maps(pid)]
        assert workers
        for pid in workers:
            os.kill(pid, signal.SIGKILL)

        def again() -> bool:
            try:
                return client.infer("m", [given]).as_numpy("scores").shape == (2, 4)
            except Exception:  # noqa: BLE001 - its process is on its way
                return False

        eventually(again, "an answer of the new process", 60)


def maps(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("isolate", ["", parameter("kushi.isolate", "true"), parameter("kushi.isolate", "false")])
def test_whatever_is_said_of_isolation_it_is_in_processes(tmp_path: Path, isolate: str) -> None:
    Network().save(tmp_path, "m", f'backend: "tensorflow" {isolate} instance_group {{ count: 2 }}')
    with Engine(tmp_path) as engine:
        assert engine.infer("m", image(1))["scores"].shape == (1, 4)


def test_a_graph_that_chooses_its_devices_computes_as_one_that_is_placed(tmp_path: Path) -> None:
    network = Network()
    network.save(tmp_path, "m", 'backend: "tensorflow" instance_group { kind: KIND_MODEL count: 2 }')
    with Engine(tmp_path) as engine:
        assert np.abs(engine.infer("m", image(3))["scores"] - network.scores(image(3))["scores"].numpy()).max() < 1e-6


@pytest.mark.parametrize(
    ("gpu", "by_itself", "expected"),
    [
        (1, False, ["sees GPU 1", "GPU 1 grows", "computes on /GPU:0"]),
        (None, False, ["sees", "computes on /CPU:0"]),
        (None, True, ["sees GPU 0 GPU 1", "GPU 0 grows", "GPU 1 grows"]),
    ],
)
def test_gpus_are_chosen_before_tensorflow_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: int | None, by_itself: bool, expected: list[str]
) -> None:
    calls: list[str] = []

    def device(name: str) -> AbstractContextManager[None]:
        # the first such call starts TensorFlow, which no longer lets its devices be changed
        calls.append(f"computes on {name}")
        return nullcontext()

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: ["GPU 0", "GPU 1"])
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda seen, _: calls.append(" ".join(["sees", *seen])))
    monkeypatch.setattr(
        tf.config.experimental, "set_memory_growth", lambda device, enable: calls.append(f"{device} grows" * enable)
    )
    monkeypatch.setattr(tf, "device", device)
    Network().save(tmp_path, "m")
    (source,) = scan([tmp_path]).models
    model = Placed(source, 1, parse('backend: "tensorflow"', "config.pbtxt"), (gpu,), (by_itself,))
    TensorFlowBackend({}).prepare(model).open(tmp_path / "m" / "1" / "model.savedmodel")
    assert calls == expected


@pytest.mark.clock
@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
def test_each_process_is_on_the_cores_of_its_instance(tmp_path: Path, start_server: StartServer) -> None:
    cores = parameter("kushi.cores", f"{CORES[0]};{CORES[-1]}")
    Network().save(tmp_path, "m", f'backend: "tensorflow" instance_group {{ kind: KIND_CPU count: 2 }} {cores}')
    server = start_server(tmp_path)
    assert [processes_on(server.pid, core) for core in (CORES[0], CORES[-1])] == [1, 1]


def test_a_signature_is_chosen_by_its_name(tmp_path: Path) -> None:
    network = Network()
    both = {"serving_default": network.scores, "double": network.doubled}
    network.save(tmp_path, "default", **both)
    chosen = 'platform: "tensorflow_savedmodel" ' + parameter("TF_SIGNATURE_DEF", "double")
    network.save(tmp_path, "double", chosen, **both)
    network.save(tmp_path, "wrong", 'backend: "tensorflow" ' + parameter("TF_SIGNATURE_DEF", "triple"), **both)
    network.save(tmp_path, "tag", 'backend: "tensorflow" ' + parameter("TF_GRAPH_TAG", "train"), **both)
    with Engine(tmp_path, options=TOLERANT) as engine:
        assert engine.infer("default", image(1))["scores"].shape == (1, 4)
        assert engine.infer("double", np.array([[1.5]], np.float32))["y"].tolist() == [[3]]
        assert "has no signature 'triple', it has 'double', 'serving_default'" in str(engine.failures["wrong"])
        assert "cannot be loaded" in str(engine.failures["tag"])


@pytest.mark.parametrize("datatype", TYPES)
def test_every_datatype_passes_unchanged(tmp_path: Path, datatype: str) -> None:
    Same(TYPES[datatype]).save(tmp_path, "m", [None, 3])
    values: NDArray[Any] = np.array([[1, 0, 1], [0, 1, 1]])
    if datatype == "BYTES":
        values = np.array([["plain", "", "žluť"], ["a", "b\0c", "x" * 1000]], np.object_)
    with Engine(tmp_path) as engine:
        answer = engine.infer("m", values if datatype == "BYTES" else values.astype(TYPES[datatype].as_numpy_dtype))
        found = answer["OUT"]
        if datatype == "BYTES":
            assert [[text.decode() for text in row] for row in found.tolist()] == values.tolist()
        else:
            assert np.array_equal(found.astype(np.float64), values)


def test_a_request_that_fails_fails_alone(tmp_path: Path) -> None:
    network = Network()
    network.save(tmp_path, "m", serving_default=network.doubled)
    with Engine(tmp_path) as engine:
        for _ in range(2):
            with pytest.raises(EngineFailed, match=r"TensorFlow execute failure: .*not finite"):
                engine.infer("m", np.array([[np.inf]], np.float32))
            assert engine.infer("m", np.array([[2]], np.float32))["y"].tolist() == [[4]]


def test_an_input_that_requests_may_leave_out_is_refused(tmp_path: Path) -> None:
    text = """backend: "tensorflow"
input { name: "IN" data_type: TYPE_FP32 dims: [ 3 ] optional: true }
output { name: "OUT" data_type: TYPE_FP32 dims: [ 3 ] }"""
    Same(tf.float32).save(tmp_path, "m", [3])
    (tmp_path / "m" / "config.pbtxt").write_text(text)
    with Engine(tmp_path, options=TOLERANT) as engine:
        assert "model 'm': input 'IN' is optional, and TensorFlow knows no inputs that are" in str(engine.failures["m"])


def frozen(repository: Path, name: str, text: str) -> None:
    graph = tf.Graph()
    with graph.as_default():
        given = tf.compat.v1.placeholder(tf.float32, [None, 2], name="X")
        tf.identity(given * 3, name="Y")
    version = repository / name / "1"
    version.mkdir(parents=True)
    (version / "model.graphdef").write_bytes(graph.as_graph_def().SerializeToString())
    (repository / name / "config.pbtxt").write_text(text)


def test_a_graph_says_its_tensors_in_the_configuration(tmp_path: Path) -> None:
    tensors = """max_batch_size: 4
input { name: "X" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ 2 ] }"""
    platform = 'platform: "tensorflow_graphdef"\n'
    frozen(tmp_path, "m", platform + tensors)
    frozen(tmp_path, "silent", platform)
    frozen(tmp_path, "wrong", platform + tensors.replace('"Y"', '"Z"'))
    with Engine(tmp_path, options=TOLERANT) as engine:
        assert engine.infer("m", np.array([[1, 2]], np.float32))["Y"].tolist() == [[3, 6]]
        assert "does not say what its inputs and outputs are" in str(engine.failures["silent"])
        assert "has no tensor 'Z'" in str(engine.failures["wrong"])


class Trained(Network):
    """With what an optimizer keeps, as in a file that was written while it was trained."""

    def __init__(self) -> None:
        super().__init__()
        self.optimizer = tf.Module()
        self.optimizer.momentum = tf.Variable(tf.zeros([8, 4]))

    def save(self, repository: Path, name: str, text: str = "", **signatures: Any) -> None:  # noqa: ANN401 - as above
        super().save(repository, name, text, **signatures)
        path = repository / name / "1" / "model.savedmodel" / "saved_model.pb"
        file = saved_model_pb2.SavedModel.FromString(path.read_bytes())
        nodes = file.meta_graphs[0].object_graph_def.nodes
        child = {one.local_name: one.node_id for one in nodes[0].children}
        optimizer = nodes[child["optimizer"]]
        momentum = next(one.node_id for one in optimizer.children if one.local_name == "momentum")
        optimizer.slot_variables.add(
            original_variable_node_id=child["weights"], slot_name="momentum", slot_variable_node_id=momentum
        )
        path.write_bytes(file.SerializeToString())


def test_what_an_optimizer_keeps_is_left_out(tmp_path: Path) -> None:
    network = Trained()
    network.save(tmp_path, "m")
    with pytest.raises(AttributeError, match="add_slot"):
        tf.saved_model.load(str(tmp_path / "m" / "1" / "model.savedmodel"))
    network.save(
        tmp_path, "several", parameter("TF_SIGNATURE_DEF", "second"), first=network.scores, second=network.doubled
    )
    network.save(tmp_path, "none", parameter("TF_SIGNATURE_DEF", "third"), first=network.scores, second=network.doubled)
    with Engine(tmp_path, options=TOLERANT) as engine:
        assert engine.get_model_config("m")["max_batch_size"] == 4
        answer, expected = engine.infer("m", image(3)), network.scores(image(3))
        for name in ("scores", "largest"):
            assert np.abs(answer[name] - expected[name].numpy()).max() < 1e-6
        assert engine.infer("several", np.array([[2]], np.float32))["y"].tolist() == [[4.0]]
        with pytest.raises(KushiError, match="not finite"):
            engine.infer("several", np.array([[np.nan]], np.float32))
        assert "has no signature 'third', it has 'first', 'second': name one" in str(engine.failures["none"])


def test_files_larger_than_any_message_are_not_read(tmp_path: Path) -> None:
    tensors = """input { name: "X" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ 2 ] }"""
    frozen(tmp_path, "frozen", f'platform: "tensorflow_graphdef"\n{tensors}')
    Network().save(tmp_path, "saved")
    files = {
        "frozen": tmp_path / "frozen" / "1" / "model.graphdef",
        "saved": tmp_path / "saved" / "1" / "model.savedmodel" / "saved_model.pb",
    }
    for path in files.values():
        # the rest is a hole
        os.truncate(path, 2**40)
    with Engine(tmp_path, options=TOLERANT) as engine:
        for name, path in files.items():
            assert f"'{path}' has {2**40} bytes, expected at most {2**31 - 1}" in str(engine.failures[name])


def test_what_is_no_saved_model_is_refused_and_the_server_lives(tmp_path: Path) -> None:
    broken = tmp_path / "broken" / "1" / "model.savedmodel"
    broken.mkdir(parents=True)
    (broken / "saved_model.pb").write_bytes(b"no model")
    Network().save(tmp_path, "m")
    with Engine(tmp_path, options=TOLERANT) as engine:
        assert "SavedModel" in str(engine.failures["broken"])
        assert engine.infer("m", image(1))["scores"].shape == (1, 4)


def test_openvino_reads_a_lite_model_and_a_saved_model(tmp_path: Path) -> None:
    network = Network()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([network.scores.get_concrete_function()], network)
    lite = tmp_path / "lite" / "1"
    lite.mkdir(parents=True)
    (lite / "model.tflite").write_bytes(converter.convert())
    (tmp_path / "lite" / "config.pbtxt").write_text('backend: "openvino" default_model_filename: "model.tflite"')
    network.save(tmp_path, "saved", 'backend: "openvino" default_model_filename: "model.savedmodel"')
    expected = network.scores(image(1))["scores"].numpy()
    with Engine(tmp_path) as engine:
        for name in ("lite", "saved"):
            answers = engine.infer(name, image(1))
            (scores,) = (answers[key] for key in answers if answers[key].shape == (1, 4))
            assert np.abs(scores - expected).max() < 1e-5
    assert "tensorflow" in sys.modules
