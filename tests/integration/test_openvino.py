"""Models of OpenVINO: equal to ONNX Runtime on the same network, in batches, on several instances, after faults."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from tritonclient.http import InferenceServerClient, InferInput

from runners import Engine, EngineOptions
from runners.errors import EngineFailed, InvalidInput
from tests import models
from tests.hostile_models import with_weights_in
from tests.serving import ROOT
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import onnx
    from numpy.typing import NDArray

    from tests.conftest import StartServer

SIZE: Final = 64
TOLERANCE: Final = 1e-4
TOLERANT: Final = EngineOptions(exit_on_error=False)
OPENVINO: Final = 'backend: "openvino" default_model_filename: "model.onnx"\n'
BATCHED: Final = f"""max_batch_size: 8
input {{ name: "X" data_type: TYPE_FP32 dims: [ {SIZE} ] }}
output {{ name: "Y" data_type: TYPE_FP32 dims: [ {SIZE} ] }}
"""


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def network(rows: models.Dim = "batch") -> onnx.ModelProto:
    """Two products of matrices with a tanh between them."""
    generator = np.random.default_rng(2)
    weights = [
        numpy_helper.from_array(generator.standard_normal((SIZE, SIZE), dtype=np.float32) / 8, name)
        for name in ("A", "B")
    ]
    nodes = [
        helper.make_node("MatMul", ["X", "A"], ["H"]),
        helper.make_node("Tanh", ["H"], ["T"]),
        helper.make_node("MatMul", ["T", "B"], ["Y"]),
    ]
    given, made = ([models.tensor(name, "FP32", [rows, SIZE])] for name in ("X", "Y"))
    return models.model(nodes, given, made, weights)


def stubborn() -> onnx.ModelProto:
    """Adds a constant of one row for each of four rows, so that it has four rows and no others."""
    generator = np.random.default_rng(3)
    weights = [numpy_helper.from_array(generator.standard_normal((4, SIZE), dtype=np.float32), "A")]
    given, made = ([models.tensor(name, "FP32", [4, SIZE])] for name in ("X", "Y"))
    return models.model([helper.make_node("Add", ["X", "A"], ["Y"])], given, made, weights)


def by_onnxruntime(model: onnx.ModelProto, value: NDArray[Any]) -> NDArray[Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (answer,) = session.run(None, {session.get_inputs()[0].name: value})
    return np.asarray(answer)


def rows(count: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((count, SIZE), dtype=np.float32)


def together(calls: Sequence[Callable[[], None]]) -> None:
    failures: list[BaseException] = []

    def run(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - raised again below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "instance_group { count: 2 }",
        parameter("INFERENCE_NUM_THREADS", "2"),
        parameter("NUM_STREAMS", "2"),
        parameter("PERFORMANCE_HINT", "THROUGHPUT"),
        parameter("TARGET_DEVICE", "AUTO"),
        parameter("TARGET_DEVICE", "MULTI:CPU"),
        parameter("TARGET_DEVICE", "HETERO:CPU"),
    ],
)
def test_batches_of_any_size_from_any_thread_equal_onnxruntime(tmp_path: Path, text: str) -> None:
    models.write(tmp_path, "m", network(), OPENVINO + BATCHED + text + " dynamic_batching { }")
    with Engine(tmp_path) as engine:

        def ask(seed: int) -> None:
            for count in (1, 3, 8, 2):
                value = rows(count, seed)
                answer = engine.infer("m", value)["Y"]
                assert np.abs(answer - by_onnxruntime(network(), value)).max() < TOLERANCE

        together([partial(ask, seed) for seed in range(6)])


def test_a_model_without_configuration_is_completed_from_its_file(tmp_path: Path) -> None:
    models.write(tmp_path, "m", network(), OPENVINO)
    with Engine(tmp_path) as engine:
        config = engine.get_model_config("m")
        assert config["max_batch_size"] == 4
        assert [(one["name"], one["data_type"], one["dims"]) for one in (*config["input"], *config["output"])] == [
            ("X", "TYPE_FP32", [SIZE]),
            ("Y", "TYPE_FP32", [SIZE]),
        ]
        assert engine.get_model_metadata("m")["platform"] == "openvino"


def test_a_file_of_one_row_takes_batches_where_the_configuration_has_them(tmp_path: Path) -> None:
    models.write(tmp_path, "batched", network(1), OPENVINO + BATCHED)
    models.write(tmp_path, "plain", network(1), OPENVINO)
    with Engine(tmp_path) as engine:
        for count in (1, 5, 8):
            answer = engine.infer("batched", rows(count))["Y"]
            assert np.abs(answer - by_onnxruntime(network(), rows(count))).max() < TOLERANCE
        assert engine.get_model_config("plain")["max_batch_size"] == 0
        with pytest.raises(InvalidInput):
            engine.infer("plain", rows(2))


def test_a_network_of_so_many_rows_and_no_others_needs_padding(tmp_path: Path) -> None:
    four = OPENVINO + BATCHED.replace("8", "4", 1)
    models.write(tmp_path, "refuses", stubborn(), four)
    models.write(tmp_path, "pads", stubborn(), four + parameter("ENABLE_BATCH_PADDING", "YES"))
    models.write(tmp_path, "told", network(1), four + parameter("SKIP_OV_DYNAMIC_BATCHSIZE", "YES"))
    with Engine(tmp_path) as engine:
        whole = by_onnxruntime(stubborn(), rows(4))
        for count in (1, 2, 4):
            assert np.abs(engine.infer("pads", rows(4)[:count])["Y"] - whole[:count]).max() < TOLERANCE
        assert np.abs(engine.infer("refuses", rows(4))["Y"] - whole).max() < TOLERANCE
        for name in ("refuses", "told"):
            with pytest.raises(
                EngineFailed, match=r"expected requests with batch size '4', got '3'.*ENABLE_BATCH_PADDING"
            ):
                engine.infer(name, rows(3))


def test_a_batch_that_always_has_all_rows_is_bounded(tmp_path: Path) -> None:
    padded = parameter("ENABLE_BATCH_PADDING", "YES") + parameter("SKIP_OV_DYNAMIC_BATCHSIZE", "YES")
    models.write(tmp_path, "m", network(1), OPENVINO + BATCHED.replace("8", str(2**28), 1) + padded)
    with Engine(tmp_path, options=EngineOptions(exit_on_error=False)) as engine:
        said = str(engine.failures["m"])
    assert f"takes batches of {2**28} rows and no others, and its inputs have {2**28 * SIZE * 4} bytes then" in said


def test_an_output_that_nobody_is_served_decides_nothing_about_batches(tmp_path: Path) -> None:
    made = network()
    made.graph.node.append(helper.make_node("ReduceSum", ["Y"], ["all"], keepdims=0))
    made.graph.output.append(models.tensor("all", "FP32", []))
    models.write(tmp_path, "m", made, OPENVINO + BATCHED)
    with Engine(tmp_path) as engine:
        value = rows(3)
        np.testing.assert_allclose(engine.infer("m", value)["Y"], by_onnxruntime(network(), value), atol=TOLERANCE)


def test_shapes_follow_the_configuration_where_it_says_so(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["X"], ["Y"])
    given, made = ([models.tensor(name, "FP32", [1, 4])] for name in ("X", "Y"))
    any_rows = "data_type: TYPE_FP32 dims: [ -1, 6 ]"
    tensors = f'input {{ name: "X" {any_rows} }} output {{ name: "Y" {any_rows} }}'
    model = models.model([node], given, made)
    models.write(tmp_path, "other", model, OPENVINO + tensors + parameter("RESHAPE_IO_LAYERS", "yes"))
    models.write(tmp_path, "same", model, OPENVINO + tensors)
    with Engine(tmp_path, options=TOLERANT) as engine:
        value = np.ones((3, 6), np.float32)
        assert engine.infer("other", value)["Y"].shape == (3, 6)
        assert "the model expects 2 dimensions (shape [1,4])" in str(engine.failures["same"])


def test_scalars_and_empty_tensors_pass(tmp_path: Path) -> None:
    models.write(tmp_path, "scalar", models.scalar(), OPENVINO)
    models.write(tmp_path, "empty", models.identity("FP32"), OPENVINO)
    with Engine(tmp_path) as engine:
        assert engine.infer("scalar", np.array([3], np.float32))["OUTPUT0"].tolist() == [6]
        assert engine.infer("empty", np.zeros((2, 0), np.float32))["OUTPUT0"].shape == (2, 0)


@pytest.mark.parametrize("datatype", sorted(models.DATATYPES.keys() - {"BF16", "BYTES", "BOOL"}))
def test_every_numeric_type_is_computed(tmp_path: Path, datatype: str) -> None:
    models.write(tmp_path, "m", models.add_sub(("batch", "n"), datatype), OPENVINO)
    of = np.dtype({"FP16": "f2", "FP32": "f4", "FP64": "f8"}.get(datatype, datatype.lower()))
    left, right = np.array([[7, 3, 100]], of), np.array([[2, 3, 50]], of)
    with Engine(tmp_path) as engine:
        answer = engine.infer("m", left, right)
        assert answer["OUTPUT0"].tolist() == [[9, 6, 150 if of.itemsize > 1 or of.kind == "u" else 127]]
        assert answer["OUTPUT1"].tolist() == [[5, 0, 50]]


def test_an_integer_beyond_32_bits_is_refused_instead_of_cut(tmp_path: Path) -> None:
    models.write(tmp_path, "m", models.identity("INT64"), OPENVINO)
    with Engine(tmp_path) as engine:
        with pytest.raises(InvalidInput, match="has the value 4294967296, and OpenVINO computes INT64 in 32 bits"):
            engine.infer("m", np.array([[1, 1 << 32]]))
        assert engine.infer("m", np.array([[-5, 7]]))["OUTPUT0"].tolist() == [[-5, 7]]


def test_strings_that_would_end_the_process_are_refused(tmp_path: Path) -> None:
    models.write(tmp_path, "m", models.identity("BYTES"), OPENVINO)
    with Engine(tmp_path, options=TOLERANT) as engine:
        assert "is of BYTES, which OpenVINO takes safely in models of its own format alone" in str(engine.failures["m"])


def test_a_request_that_fails_fails_alone_and_leaves_nothing_behind(tmp_path: Path) -> None:
    names = ("input", "INPUT0"), ("input", "INPUT1"), ("output", "OUTPUT0"), ("output", "OUTPUT1")
    tensors = [f'{kind} {{ name: "{name}" data_type: TYPE_FP32 dims: [ -1 ] }}\n' for kind, name in names]
    models.write(tmp_path, "m", models.add_sub(("n",), "FP32"), OPENVINO + "".join(tensors))
    with Engine(tmp_path) as engine:
        for _ in range(3):
            with pytest.raises(EngineFailed, match="openvino error in running inference : "):
                engine.infer("m", np.zeros(2, np.float32), np.zeros(3, np.float32))
            for count in (2, 1, 3, 2):
                one = np.arange(count, dtype=np.float32)
                assert engine.infer("m", one, one)["OUTPUT0"].tolist() == (2 * one).tolist()


def test_a_parameter_that_is_nearly_one_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    models.write(tmp_path, "m", network(), OPENVINO + parameter("INFERENCE_NUM_THREAD", "2"))
    with Engine(tmp_path):
        pass
    assert "did you mean 'INFERENCE_NUM_THREADS'?" in caplog.text


def test_a_compiled_network_is_kept_and_a_spoilt_one_made_again(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    models.write(tmp_path / "models", "m", network(), OPENVINO)
    options = EngineOptions(backend_config={"openvino": {"engine-cache-directory": str(cache)}})

    def answer() -> NDArray[Any]:
        with Engine(tmp_path / "models", options=options) as engine:
            return np.asarray(engine.infer("m", rows(2))["Y"])

    first = answer()
    blobs = list((cache / "m" / "1" / "openvino").iterdir())
    assert blobs
    assert np.array_equal(answer(), first)
    assert sorted(blobs) == sorted((cache / "m" / "1" / "openvino").iterdir())
    for blob in blobs:
        blob.write_bytes(b"spoilt")
    assert np.array_equal(answer(), first)


def convert(path: Path) -> None:
    """OpenVINO's own format, in a process of its own."""
    program = """
import sys, openvino
openvino.save_model(openvino.convert_model(sys.argv[1]), sys.argv[2], compress_to_fp16=False)
"""
    source = path / "model.onnx"
    source.write_bytes(network().SerializeToString())
    subprocess.run([sys.executable, "-c", program, source, path / "model.xml"], check=True, capture_output=True)
    source.unlink()


def test_its_own_format_is_served_over_http_and_alone(tmp_path: Path, start_server: StartServer) -> None:
    version = tmp_path / "models" / "m" / "1"
    version.mkdir(parents=True)
    convert(version)
    value = rows(3)
    expected = by_onnxruntime(network(), value)
    for served in (tmp_path / "models", version / "model.xml"):
        server = start_server(served)
        name = "m" if served.is_dir() else "model"
        with InferenceServerClient(server.url.removeprefix("http://")) as client:
            given = InferInput("X", list(value.shape), "FP32").set_data_from_numpy(value)
            answer = client.infer(name, [given]).as_numpy("Y")
        assert np.abs(answer - expected).max() < TOLERANCE


BESIDE: Final = """
import json, sys
import numpy as np
from runners import Engine, EngineOptions, ModelOptions

repository, value = sys.argv[1], np.load(sys.argv[2])
answers = {}
with Engine(repository, options=EngineOptions(models=ModelOptions(control="explicit"))) as engine:
    for name in sys.argv[3:]:
        engine.load_model(name)
        for loaded in [*answers, name]:
            answers.setdefault(loaded, []).append(engine.infer(loaded, value)["Y"].tolist())
print(json.dumps(answers))
"""


@pytest.mark.parametrize("first", ["openvino", "provider"])
def test_it_runs_beside_the_provider_of_onnxruntime_in_one_process(tmp_path: Path, first: str) -> None:
    pytest.importorskip("onnxruntime_ep_openvino", reason="there is no package of it for this machine")
    if "GenuineIntel" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("the provider takes CPUs of Intel alone")
    inside = 'cpu_execution_accelerator { name: "openvino" }'
    models.write(
        tmp_path / "models", "provider", network(), f"optimization {{ execution_accelerators {{ {inside} }} }}"
    )
    version = models.write(tmp_path / "models", "openvino", network(), 'backend: "openvino"') / "1"
    convert(version)
    np.save(tmp_path / "value.npy", rows(2))
    names = [first, "provider" if first == "openvino" else "openvino"]
    command = [sys.executable, "-c", BESIDE, tmp_path / "models", tmp_path / "value.npy", *names]
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = by_onnxruntime(network(), rows(2))
    for answers in json.loads(done.stdout).values():
        for answer in answers:
            assert np.abs(np.array(answer, np.float32) - expected).max() < TOLERANCE


@pytest.mark.parametrize("location", ["*/_ORT_MEM_ADDR_/*", "../secret", "ABSOLUTE"])
def test_weights_are_not_read_elsewhere(tmp_path: Path, location: str) -> None:
    """OpenVINO would take the first for an address in its own memory"""
    secret = tmp_path / "models/m/secret"
    model = with_weights_in(str(secret) if location == "ABSOLUTE" else location)
    models.write(tmp_path / "models", "m", model, OPENVINO)
    secret.write_bytes(bytes(4096))
    with Engine(tmp_path / "models", options=EngineOptions(exit_on_error=False)) as engine:
        assert "external data" in str(engine.failures["m"])


IR: Final = """<?xml version="1.0"?>
<net name="n" version="11"><layers>
<layer id="0" name="x" type="Parameter" version="opset1"><data shape="1" element_type="f32"/>
 <output><port id="0" precision="FP32"><dim>1</dim></port></output></layer>
<layer id="1" name="texts" type="Const" version="opset1">
 <data element_type="&#115;tring" shape="STRINGS" offset="0" size="21"/>
 <output><port id="0" precision="STRING"><dim>STRINGS</dim></port></output></layer>
<layer id="2" name="y" type="Result" version="opset1">
 <input><port id="0" precision="FP32"><dim>1</dim></port></input></layer>
</layers><edges><edge from-layer="0" from-port="0" to-layer="2" to-port="0"/></edges></net>
"""
TWO_TEXTS: Final = struct.pack("<4i", 2, 0, 2, 5) + b"abcde"


@pytest.mark.parametrize(("strings", "count"), [("200000", 2), ("2", 2), ("3", 2)])
@pytest.mark.parametrize("file", ["model.xml", "other.model"])
def test_a_constant_with_fewer_strings_than_its_shape_says_is_refused(
    tmp_path: Path, start_server: StartServer, strings: str, count: int, file: str
) -> None:
    """OpenVINO would end the process as it reads the network, whether or not anything asks for the constant"""
    folder = tmp_path / "models/m/1"
    folder.mkdir(parents=True)
    (folder / file).write_text(IR.replace("STRINGS", strings))
    (folder / file).with_suffix(".bin").write_bytes(TWO_TEXTS)
    (folder.parent / "config.pbtxt").write_text(f'backend: "openvino" default_model_filename: "{file}"')
    server = start_server(tmp_path / "models", "--exit-on-error=false", ready=False)
    if int(strings) > count:
        server.log.wait_for(re.compile(rf"constant 'texts' has 2 strings, its shape says {strings}"), 30)
        assert server.get("/v2/health/live").status == 200
    else:
        eventually(server.is_ready, "the server is ready")
