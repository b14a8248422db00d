"""Options of ONNX models, by what they change in an engine that serves them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from runners import Engine, EngineOptions
from runners.errors import KushiError
from tests import models
from tests.contract import requests
from tests.contract.requests import Infer, Tensor
from tests.examples import built
from tests.processes import thread_names
from tests.serving import ROOT
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer

BIG: Final = 256
"""MiB that the model of `growing` takes beside its inputs and outputs"""
TOLERANT: Final = EngineOptions(exit_on_error=False)


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def onnxruntime(**settings: str) -> EngineOptions:
    config = {"onnxruntime": {key.replace("__", "-"): v for key, v in settings.items()}}
    return EngineOptions(exit_on_error=False, backend_config=config)


def failure(engine: Engine, model: str) -> str:
    return str(engine.failures[model])


def growing() -> onnx.ModelProto:
    """OUTPUT0 = the largest of COUNT copies of INPUT0, which lie in memory meanwhile."""
    nodes = [
        helper.make_node("Expand", ["INPUT0", "COUNT"], ["COPIES"]),
        helper.make_node("ReduceMax", ["COPIES"], ["OUTPUT0"], keepdims=1),
    ]
    inputs = [models.tensor("INPUT0", "FP32", [1]), models.tensor("COUNT", "INT64", [1])]
    return models.model(nodes, inputs, [models.tensor("OUTPUT0", "FP32", [1])])


GROW: Final = """
import sys
import numpy as np
from runners import Engine

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) // 1024

with Engine(sys.argv[1]) as engine:
    one = np.ones(1, np.float32)
    engine.infer("m", one, np.array([1024]))
    before = resident()
    engine.infer("m", one, np.array([int(sys.argv[2]) << 18]))
    print(resident() - before)
"""


@pytest.mark.parametrize(
    ("text", "keeps"),
    [
        ("", True),
        (parameter("enable_mem_arena", "1"), True),
        (parameter("enable_mem_pattern", "1"), True),
        (parameter("enable_mem_arena", "0"), False),
        (parameter("memory.enable_memory_arena_shrinkage", "cpu:0"), False),
    ],
)
def test_memory_of_a_run_is_kept_for_the_next_unless_the_configuration_says_otherwise(
    tmp_path: Path, text: str, *, keeps: bool
) -> None:
    models.write(tmp_path, "m", growing(), models.ONE_INSTANCE + models.ONE_THREAD + text)
    done = subprocess.run(
        [sys.executable, "-c", GROW, tmp_path, str(BIG)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    grown = int(done.stdout)
    assert grown > BIG * 3 // 4 if keeps else grown < BIG // 4


def triple(domain: str = "kushi.test") -> onnx.ModelProto:
    """OUTPUT0 = three times INPUT0, by an operator that no ONNX Runtime has."""
    node = helper.make_node("Triple", ["INPUT0"], ["OUTPUT0"], domain=domain)
    given, made = ([models.tensor(name, "FP32", ["batch", 2])] for name in ("INPUT0", "OUTPUT0"))
    graph = helper.make_graph([node], "graph", given, made)
    opsets = [helper.make_opsetid("", models.OPSET), helper.make_opsetid(domain, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=models.IR_VERSION)


LIBRARY: Final = 'model_operations { op_library_filename: "operators.so" }'


@pytest.mark.parametrize("place", ["", "1"])
def test_a_model_computes_with_operators_of_its_own(tmp_path: Path, place: str) -> None:
    folder = models.write(tmp_path, "m", triple(), LIBRARY)
    shutil.copy(built("kushi_custom_op"), folder / place / "operators.so")
    models.write(tmp_path, "without", triple())
    with Engine(tmp_path, options=TOLERANT) as engine:
        value = np.array([[1.5, -2.0]], np.float32)
        assert np.array_equal(engine.infer("m", value)["OUTPUT0"], 3 * value)
        assert "Triple" in failure(engine, "without")
        engine.load_model("m")
        assert np.array_equal(engine.infer("m", value)["OUTPUT0"], 3 * value)


def test_models_that_bring_the_same_operators_are_loaded_at_the_same_time(
    repository: Path, start_server: StartServer
) -> None:
    """ONNX Runtime adds their domain once in a process, and two at the same time are one too many for it."""
    for number in range(8):
        folder = models.write(repository, f"m{number}", triple(), LIBRARY)
        shutil.copy(built("kushi_custom_op"), folder / "operators.so")
    for _ in range(3):
        assert start_server(repository, "--model-load-thread-count=8").stop() == 0


def test_a_library_of_operators_that_was_replaced_is_never_taken_for_the_old_one(tmp_path: Path) -> None:
    folder = models.write(tmp_path, "m", triple(), LIBRARY)
    old = built("kushi_custom_op").read_bytes()
    (folder / "operators.so").write_bytes(old)
    # the same operator, of another domain
    new = old.replace(b"kushi.test", b"kushi.next")
    value = np.array([[1.5, -2.0]], np.float32)
    with Engine(tmp_path) as engine:
        (folder / "operators.so").unlink()
        (folder / "operators.so").write_bytes(new)
        (folder / "1" / "model.onnx").write_bytes(triple("kushi.next").SerializeToString())
        with pytest.raises(KushiError, match=r"operators\.so' cannot be used: the process still has an older file"):
            engine.load_model("m")
        assert np.array_equal(engine.infer("m", value)["OUTPUT0"], 3 * value)
        (folder / "operators.so").rename(folder / "next.so")
        (folder / "config.pbtxt").write_text('model_operations { op_library_filename: "next.so" }')
        engine.load_model("m")
        assert np.array_equal(engine.infer("m", value)["OUTPUT0"], 3 * value)


def test_operators_come_out_of_the_directory_of_the_model(tmp_path: Path) -> None:
    (tmp_path / "operators.so").touch()
    repository = tmp_path / "models"
    for name, stated in {"above": "../../operators.so", "absolute": str(tmp_path / "operators.so")}.items():
        models.write(repository, name, triple(), f'model_operations {{ op_library_filename: "{stated}" }}')
    linked = models.write(repository, "linked", triple(), LIBRARY)
    (linked / "operators.so").symlink_to(tmp_path / "operators.so")
    text = models.write(repository, "text", triple(), LIBRARY)
    (text / "operators.so").write_text("not a library")
    with Engine(repository, options=TOLERANT) as engine:
        for name in ("above", "absolute", "linked"):
            assert "must be a file inside the directory of the model" in failure(engine, name)
            assert f"{name}/config.pbtxt: model_operations.op_library_filename" in failure(engine, name)
        assert f"custom operators of '{text / 'operators.so'}' cannot be used" in failure(engine, "text")


def test_the_profile_of_a_session_is_written_when_its_model_goes(tmp_path: Path) -> None:
    repository, profiles = tmp_path / "models", tmp_path / "profiles"
    profiles.mkdir()
    models.write(repository, "shared", models.plus_constant(1), parameter("kushi.profile", "1"))
    own = parameter("kushi.profile", "true") + parameter("intra_op_thread_count", "2")
    models.write(repository, "own", models.plus_constant(1), own)
    models.write(repository, "quiet", models.plus_constant(1))
    with Engine(repository, options=onnxruntime(profile__directory=str(profiles))) as engine:
        assert not engine.failures
        for name in ("shared", "own", "quiet"):
            engine.infer(name, np.array([[1]], np.int32))
            engine.unload_model(name)
    names = sorted(path.name for path in profiles.iterdir())
    assert [re.split(r"_\d{4}-", name)[0] for name in names] == ["own_1_0", "own_1_1", "shared_1_0"]
    (profile,) = profiles.glob("shared_*.json")
    assert any(event["name"] == "model_run" for event in json.loads(profile.read_text()))


@pytest.mark.clock
@pytest.mark.parametrize(
    ("text", "threads"),
    [
        (parameter("intra_op_thread_count", "1"), 0),
        # two instances, each with two beside the one that calls
        (parameter("intra_op_thread_count", "3"), 4),
        # those across operators are for a graph whose operators run side by side
        (parameter("intra_op_thread_count", "1") + parameter("inter_op_thread_count", "3"), 0),
        (
            parameter("intra_op_thread_count", "1")
            + parameter("execution_mode", "1")
            + parameter("inter_op_thread_count", "3"),
            4,
        ),
    ],
)
def test_each_instance_has_the_threads_that_its_model_asks_for(
    tmp_path: Path, start_server: StartServer, text: str, threads: int
) -> None:
    models.write(tmp_path, "m", models.plus_constant(1), text)
    server = start_server(tmp_path)
    eventually(
        lambda: list(thread_names(server.pid).values()).count("kushi-load") == threads,
        f"{threads} threads for the model",
    )


def test_a_profile_goes_nowhere_but_where_the_operator_says(tmp_path: Path) -> None:
    models.write(tmp_path, "m", models.plus_constant(1), parameter("kushi.profile", "1"))
    with Engine(tmp_path, options=TOLERANT) as engine:
        expected = "parameter 'kushi.profile' of model 'm' needs a directory, which the operator names"
        assert expected in failure(engine, "m")
    (tmp_path / "m" / "config.pbtxt").write_text('name: "../../m"' + parameter("kushi.profile", "1"))
    with Engine(tmp_path, options=onnxruntime(profile__directory=str(tmp_path / "m"))) as engine:
        assert "unexpected directory name 'm' for model '../../m'" in failure(engine, "m")


def convert(source: Path, target: Path) -> None:
    """A model in ONNX Runtime's own format."""
    script = (
        "import sys, onnxruntime\n"
        "options = onnxruntime.SessionOptions()\n"
        "options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC\n"
        "options.optimized_model_filepath = sys.argv[2]\n"
        "onnxruntime.InferenceSession(sys.argv[1], options, providers=['CPUExecutionProvider'])\n"
    )
    subprocess.run([sys.executable, "-c", script, source, target], check=True)
    source.unlink()


NAMED: Final = 'backend: "onnxruntime" default_model_filename: "{}"'


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("model.ort", None),
        ("model.ort", NAMED.format("model.ort")),
        ("net.bin", NAMED.format("net.bin") + parameter("session.load_model_format", "ORT")),
    ],
)
def test_a_model_in_onnx_runtimes_own_format_is_served(tmp_path: Path, file: str, text: str | None) -> None:
    folder = models.write(tmp_path, "m", models.plus_constant(41), text) / "1"
    convert(folder / "model.onnx", folder / "model.ort")
    (folder / "model.ort").rename(folder / file)
    with Engine(tmp_path) as engine:
        assert engine.infer("m", np.array([[1]], np.int32))["OUTPUT0"].item() == 42
        assert engine.get_model_config("m")["platform"] == "onnxruntime_onnx"


def test_a_bare_file_in_onnx_runtimes_own_format_is_served_under_its_stem(
    tmp_path: Path, start_server: StartServer
) -> None:
    (tmp_path / "sum.onnx").write_bytes(models.plus_constant(41).SerializeToString())
    convert(tmp_path / "sum.onnx", tmp_path / "sum.ort")
    server = start_server(None, str(tmp_path / "sum.ort"))
    headers, body = requests.body(Infer("sum", [Tensor("INPUT0", "INT32", (1, 1), values=[1])]))
    assert server.post(requests.path("sum"), body, headers).json()["outputs"][0]["data"] == [42]


def external(location: str) -> bytes:
    """OUTPUT0 = INPUT0 + one number, which lies in a file."""
    built_model = models.plus_constant(0)
    (constant,) = built_model.graph.initializer
    constant.ClearField("int32_data")
    constant.data_location = TensorProto.EXTERNAL
    constant.external_data.add(key="location", value=location)
    return built_model.SerializeToString()


@pytest.mark.parametrize("folder", ["", "model.onnx"])
def test_weights_lie_beside_the_model_or_with_it_in_a_directory(tmp_path: Path, folder: str) -> None:
    place = tmp_path / "m" / "1" / folder
    place.mkdir(parents=True)
    (place / "model.onnx").write_bytes(external("weights.bin"))
    (place / "weights.bin").write_bytes(np.array([9], np.int32).tobytes())
    with Engine(tmp_path) as engine:
        assert engine.infer("m", np.array([[1]], np.int32))["OUTPUT0"].item() == 10


@pytest.mark.parametrize("folder", ["", "model.onnx"])
@pytest.mark.parametrize(
    "location", ["../weights.bin", "../../other/weights.bin", "linked.bin", "linked/weights.bin", "ABSOLUTE"]
)
def test_weights_elsewhere_are_not_read(tmp_path: Path, location: str, folder: str) -> None:
    place = tmp_path / "m" / "1" / folder
    place.mkdir(parents=True)
    other = place.parent.parent / "other"
    other.mkdir()
    for directory in (other, place.parent):
        (directory / "weights.bin").write_bytes(np.array([9], np.int32).tobytes())
    (place / "linked.bin").symlink_to(other / "weights.bin")
    (place / "linked").symlink_to(other)
    stated = str(other / "weights.bin") if location == "ABSOLUTE" else location
    (place / "model.onnx").write_bytes(external(stated))
    with Engine(tmp_path, options=TOLERANT) as engine:
        with pytest.raises(KushiError):
            engine.infer("m", np.array([[1]], np.int32))
        assert f"model '{place}/model.onnx' cannot be loaded: " in failure(engine, "m")
        assert "xternal data" in failure(engine, "m")


def test_an_accelerator_that_no_instance_could_use_changes_nothing(tmp_path: Path) -> None:
    text = 'optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" } } }'
    models.write(tmp_path, "m", models.plus_constant(1), f"{text} instance_group {{ kind: KIND_CPU }}")
    with Engine(tmp_path) as engine:
        assert engine.infer("m", np.array([[1]], np.int32))["OUTPUT0"].item() == 2


def test_a_gpu_that_is_not_there_leaves_the_old_version_serving(tmp_path: Path) -> None:
    subject = "instance group m_0 of model m has kind KIND_GPU but server does not support GPUs"
    folder = models.write(tmp_path, "m", models.plus_constant(1))
    with Engine(tmp_path) as engine:
        (folder / "config.pbtxt").write_text("instance_group { kind: KIND_GPU }")
        with pytest.raises(KushiError) as raised:
            engine.load_model("m")
        assert f"{folder}/config.pbtxt: {subject}: onnxruntime 1.31" in str(raised.value)
        assert " has no CUDAExecutionProvider, it has " in str(raised.value)
        assert engine.infer("m", np.array([[1]], np.int32))["OUTPUT0"].item() == 2


@pytest.mark.parametrize("key", ["", "onnxruntime"])
@pytest.mark.parametrize(("size", "dims"), [(7, [1]), (0, [-1, 1])])
def test_the_default_of_the_largest_batch_is_the_operators(
    tmp_path: Path, key: str, size: int, dims: list[int]
) -> None:
    models.write(tmp_path, "m", models.plus_constant(1))
    options = EngineOptions(backend_config={key: {"default-max-batch-size": str(size)}})
    with Engine(tmp_path, options=options) as engine:
        config = engine.get_model_config("m")
        assert (config["max_batch_size"], config["input"][0]["dims"]) == (size, dims)
        assert engine.infer("m", np.array([[1]], np.int32))["OUTPUT0"].item() == 2


@pytest.mark.clock
def test_all_models_share_one_pool_of_threads(tmp_path: Path, start_server: StartServer) -> None:
    for name in ("a", "b", "c"):
        models.write(tmp_path, name, models.plus_constant(1))
    server = start_server(
        tmp_path,
        "--backend-config=onnxruntime,enable-global-threadpool=1",
        "--backend-config=onnxruntime,intra_op_thread_count=4",
        "--backend-config=onnxruntime,inter_op_thread_count=1",
    )

    def pools() -> tuple[int, int]:
        names = list(thread_names(server.pid).values())
        return names.count("kushi-pool"), names.count("kushi-load")

    # three beside the one that calls, and none for telemetry
    eventually(lambda: pools() == (3, 0), "threads for all models, and none that is a model's")


def test_a_process_has_threads_of_its_models_one_way_or_the_other(tmp_path: Path) -> None:
    models.write(tmp_path, "m", models.plus_constant(1))
    options = onnxruntime(enable__global__threadpool="1", intra_op_thread_count="2", inter_op_thread_count="1")
    with Engine(tmp_path) as engine, Engine(tmp_path, options=options) as other:
        assert not engine.failures
        expected = (
            "onnxruntime already runs without a global thread pool in this process, it cannot run with a global thread "
            "pool of 2 intra-op and 1 inter-op threads"
        )
        assert failure(other, "m") == expected


def test_a_setting_that_no_backend_has_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(KushiError, match="backend config 'onnxruntime,threads' is not supported by this version"):
        Engine(tmp_path, options=onnxruntime(threads="2"))


def counted() -> onnx.ModelProto:
    """COUNT has the rows of the whole batch in each of them, SUM that of the elements of each row."""
    nodes = [
        helper.make_node("Shape", ["X"], ["shape"], start=0, end=1),
        helper.make_node("Cast", ["shape"], ["rows"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["X", "axis"], ["SUM"], keepdims=1),
        helper.make_node("Sub", ["SUM", "SUM"], ["zeros"]),
        helper.make_node("Add", ["zeros", "rows"], ["COUNT"]),
    ]
    axis = helper.make_tensor("axis", TensorProto.INT64, [1], [1])
    outputs = [models.tensor(name, "FP32", ["batch", 1]) for name in ("COUNT", "SUM")]
    return models.model(nodes, [models.tensor("X", "FP32", ["batch", 3])], outputs, [axis])


def test_batches_are_filled_up_to_the_sizes_that_are_stated(tmp_path: Path) -> None:
    text = "max_batch_size: 8\n" + parameter("kushi.batch_sizes", "2,3")
    models.write(tmp_path, "m", counted(), text)
    with Engine(tmp_path, options=TOLERANT) as engine:
        assert not engine.failures
        for rows, expected in ((1, 2), (2, 2), (3, 3), (4, 8), (8, 8), (0, 2)):
            given = np.random.default_rng(rows).random((rows, 3), dtype=np.float32)
            found = engine.infer("m", given)
            np.testing.assert_array_equal(found["COUNT"], np.full((rows, 1), expected, np.float32))
            np.testing.assert_allclose(found["SUM"], given.sum(1, keepdims=True), rtol=1e-6)
        executed = engine.get_inference_statistics("m")["model_stats"][0]["batch_stats"]
    counts = {int(each["batch_size"]): int(each["compute_infer"]["count"]) for each in executed}
    assert counts == dict.fromkeys((0, 1, 2, 3, 4, 8), 1), "what was filled up does not count"


def test_a_batch_is_filled_up_with_rows_that_the_model_takes(tmp_path: Path) -> None:
    quotient = [helper.make_node("Div", ["A", "B"], ["Y"])]
    tensors = {name: models.tensor(name, "INT32", ["batch", 1]) for name in ("A", "B", "Y")}
    made = models.model(quotient, [tensors["A"], tensors["B"]], [tensors["Y"]])
    models.write(tmp_path, "m", made, "max_batch_size: 4\n" + parameter("kushi.batch_sizes", "4"))
    with Engine(tmp_path, options=TOLERANT) as engine:
        assert not engine.failures
        found = engine.infer("m", {"A": np.array([[6], [8]], np.int32), "B": np.array([[3], [2]], np.int32)})
        assert found["Y"].tolist() == [[2], [4]]


def test_the_session_of_each_size_has_a_profile_of_its_own(tmp_path: Path) -> None:
    repository, profiles = tmp_path / "models", tmp_path / "profiles"
    profiles.mkdir()
    text = "max_batch_size: 8\n" + parameter("kushi.batch_sizes", "2") + parameter("kushi.profile", "1")
    models.write(repository, "m", counted(), text)
    with Engine(repository, options=onnxruntime(profile__directory=str(profiles))) as engine:
        assert not engine.failures
    assert {"_".join(path.name.split("_")[:4]) for path in profiles.iterdir()} == {"m_1_0_2", "m_1_0_8"}
