"""What ONNX Runtime makes of the session configuration of a model, by what it then runs.

The profile of a session names the operators that it ran. Of these entries nothing can be seen from outside, so that
only their way to ONNX Runtime is tested, in the unit tests: `session.disable_prepacking` and
`session.use_device_allocator_for_initializers` (a MatMul of 137 MB takes the same memory either way),
`session.dynamic_block_base`, `session.graph_optimizations_loop_level`, `session.disable_aot_function_inlining` (the
body of a function runs under the same name) and `session.x64quantprecision`; nor of `enable_mem_pattern`.
"""

from __future__ import annotations

import json
import os
import platform
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from runners import Engine, EngineOptions
from tests import models
from tests.processes import thread_names
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

FOUR: Final = np.array([[1.0, -2.0, 3.0, 0.5]], np.float32)
IMAGE: Final = np.ones((1, 8, 8, 8), np.float32)


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def profiled(folder: Path, built: onnx.ModelProto, text: str, value: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    """The operators that one request runs, as the profile has them."""
    repository, profiles = folder / "models", folder / "profiles"
    profiles.mkdir()
    models.write(repository, "m", built, f"{text}\n{models.ONE_INSTANCE}\n{parameter('kushi.profile', '1')}")
    settings = EngineOptions(backend_config={"onnxruntime": {"profile-directory": str(profiles)}})
    with Engine(repository, options=settings) as engine:
        engine.infer("m", value)
    (profile,) = profiles.iterdir()
    return [event for event in json.loads(profile.read_text()) if "op_name" in event.get("args", {})]


def names(events: list[dict[str, Any]]) -> list[str]:
    return [event["args"]["op_name"] for event in events]


def graph(
    nodes: list[onnx.NodeProto],
    constants: Sequence[onnx.TensorProto] = (),
    shape: tuple[models.Dim, ...] = ("batch", 4),
) -> onnx.ModelProto:
    given, made = ([models.tensor(name, "FP32", shape)] for name in ("X", "Y"))
    return models.model(nodes, given, made, constants)


def scalar(name: str, value: float, kind: int = TensorProto.FLOAT) -> onnx.TensorProto:
    return helper.make_tensor(name, kind, [], [value])


def convolution() -> onnx.ModelProto:
    weights = helper.make_tensor("weights", TensorProto.FLOAT, [8, 8, 3, 3], [0.5] * (8 * 8 * 9))
    nodes = [
        helper.make_node("Identity", ["X"], ["same"]),
        helper.make_node("Conv", ["same", "weights"], ["sums"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["sums"], ["Y"]),
    ]
    return graph(nodes, [weights], ("batch", 8, 8, 8))


LEVELS: Final = {2: ["Identity", "Conv", "Relu"], -1: ["Conv", "Relu"], 1: ["FusedConv"]}
if platform.machine() == "x86_64":
    # the layout of other processors stays as it is
    LEVELS[0] = LEVELS[7] = ["Conv", "ReorderOutput"]


@pytest.mark.parametrize(("level", "operators"), LEVELS.items())
def test_the_graph_is_optimised_as_far_as_the_configuration_says(
    tmp_path: Path, level: int, operators: list[str]
) -> None:
    text = f"optimization {{ graph {{ level: {level} }} }}"
    executed = names(profiled(tmp_path, convolution(), text, IMAGE))
    # 8 channels are put into blocks of 8, as with AVX2, and not into those of 16, as with AVX-512
    assert [name for name in executed if name != "ReorderInput"] == operators


def folding() -> onnx.ModelProto:
    """Y = X minus a constant, whose sign an optimiser can turn beforehand."""
    nodes = [helper.make_node("Neg", ["constant"], ["negative"]), helper.make_node("Add", ["X", "negative"], ["Y"])]
    return graph(nodes, [scalar("constant", 5)])


def gelu() -> onnx.ModelProto:
    constants = [scalar("root", 2**0.5), scalar("one", 1), scalar("half", 0.5)]
    nodes = [
        helper.make_node("Div", ["X", "root"], ["a"]),
        helper.make_node("Erf", ["a"], ["b"]),
        helper.make_node("Add", ["b", "one"], ["c"]),
        helper.make_node("Mul", ["X", "c"], ["d"]),
        helper.make_node("Mul", ["d", "half"], ["Y"]),
    ]
    return graph(nodes, constants)


def casts() -> onnx.ModelProto:
    kinds = [TensorProto.DOUBLE, TensorProto.FLOAT, TensorProto.INT32, TensorProto.FLOAT]
    places = ["X", "a", "b", "c", "Y"]
    return graph([helper.make_node("Cast", [places[i]], [places[i + 1]], to=kind) for i, kind in enumerate(kinds)])


def quantized(operator: str, kind: int = TensorProto.UINT8) -> onnx.ModelProto:
    """An operator on whole numbers, in the way of QuantizeLinear and DequantizeLinear around it."""
    second = "left" if operator == "Add" else "right"
    nodes = [
        helper.make_node("QuantizeLinear", ["X", "scale", "zero"], ["a"]),
        helper.make_node("DequantizeLinear", ["a", "scale", "zero"], ["left"]),
        helper.make_node("DequantizeLinear", ["weights", "scale", "zero"], ["right"]),
        helper.make_node(operator, ["left", second], ["b"]),
        helper.make_node("QuantizeLinear", ["b", "scale", "zero"], ["c"]),
        helper.make_node("DequantizeLinear", ["c", "scale", "zero"], ["Y"]),
    ]
    weights = helper.make_tensor("weights", kind, [4, 4], [1] * 16)
    constants = [scalar("scale", 0.1), scalar("zero", 0, kind), weights]
    return graph(nodes, constants) if second == "right" else graph([*nodes[:2], *nodes[3:]], constants[:2])


def quantized_twice() -> onnx.ModelProto:
    nodes = []
    for index, (source, target) in enumerate([("X", "between"), ("between", "Y")]):
        scale = f"scale{index}"
        nodes.append(helper.make_node("QuantizeLinear", [source, scale, "zero"], [f"a{index}"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"a{index}", scale, "zero"], [target]))
    return graph(nodes, [scalar("scale0", 0.1), scalar("scale1", 0.2), scalar("zero", 0, TensorProto.UINT8)])


QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
PLAIN: Final = parameter("session.disable_quant_qdq", "1")
IN_FLOATS: Final = [QUANTIZE, DEQUANTIZE, "MatMul", QUANTIZE, DEQUANTIZE]


@pytest.mark.parametrize(
    ("built", "text", "operators"),
    [
        (folding(), "", ["Add"]),
        (folding(), parameter("optimization.disable_specified_optimizers", "ConstantFolding"), ["Neg", "Add"]),
        (gelu(), "", ["Gelu"]),
        (gelu(), parameter("optimization.enable_gelu_approximation", "1"), ["FastGelu"]),
        (casts(), "", ["Cast"] * 2),
        (casts(), parameter("optimization.enable_cast_chain_elimination", "1"), ["Cast"]),
        (quantized("MatMul"), "", [QUANTIZE, "QLinearMatMul", DEQUANTIZE]),
        (quantized("MatMul"), PLAIN, IN_FLOATS),
        (
            quantized("MatMul"),
            PLAIN + parameter("session.disable_qdq_constant_folding", "1"),
            [DEQUANTIZE, *IN_FLOATS],
        ),
        (
            quantized("Add", TensorProto.INT8),
            parameter("session.qdqisint8allowed", "1"),
            [QUANTIZE, "QLinearAdd", DEQUANTIZE],
        ),
        (
            quantized("Add", TensorProto.INT8),
            parameter("session.qdqisint8allowed", "0"),
            [QUANTIZE, DEQUANTIZE, DEQUANTIZE, "Add", QUANTIZE, DEQUANTIZE],
        ),
        (quantized_twice(), "", [QUANTIZE, DEQUANTIZE]),
        (quantized_twice(), parameter("session.disable_double_qdq_remover", "1"), [QUANTIZE, DEQUANTIZE] * 2),
        (quantized_twice(), parameter("session.enable_quant_qdq_cleanup", "1"), ["Identity"]),
    ],
)
def test_optimisers_do_what_the_configuration_says(
    tmp_path: Path, built: onnx.ModelProto, text: str, operators: list[str]
) -> None:
    assert names(profiled(tmp_path, built, text, FOUR)) == operators


def test_operators_run_side_by_side_on_threads_for_them(tmp_path: Path) -> None:
    parts = ["Sigmoid", "Tanh", "Exp", "Abs"]
    nodes = [helper.make_node(part, ["X"], [part]) for part in parts]
    built = graph([*nodes, helper.make_node("Sum", parts, ["Y"])])
    for mode, instance in (("0", True), ("1", False)):
        folder = tmp_path / mode
        folder.mkdir()
        text = parameter("execution_mode", mode) + parameter("inter_op_thread_count", "3") + models.ONE_THREAD
        events = profiled(folder, built, text, FOUR)
        assert sorted(names(events)) == sorted([*parts, "Sum"])
        callers = {event["tid"] for event in events}
        (run,) = (event for event in whole(folder) if event["name"] == "model_run")
        assert (callers == {run["tid"]}) is instance


def whole(folder: Path) -> list[dict[str, Any]]:
    (profile,) = (folder / "profiles").iterdir()
    events: list[dict[str, Any]] = json.loads(profile.read_text())
    return events


def test_shapes_that_contradict_the_model_are_an_error_where_the_configuration_is_strict(tmp_path: Path) -> None:
    given, made = models.tensor("X", "FP32", [1, 4]), models.tensor("Y", "FP32", [1, 5])
    built = models.model([helper.make_node("Add", ["X", "X"], ["Y"])], [given], [made])
    models.write(tmp_path, "strict", built, parameter("session.strict_shape_type_inference", "1"))
    models.write(tmp_path, "lenient", built, parameter("session.strict_shape_type_inference", "0"))
    with Engine(tmp_path, options=EngineOptions(exit_on_error=False)) as engine:
        assert set(engine.failures) == {"strict"}
        assert "Inferred=4 Declared=5" in str(engine.failures["strict"])


def test_without_the_cpu_to_fall_back_to_a_model_of_the_cpu_is_an_error(tmp_path: Path) -> None:
    models.write(tmp_path, "m", models.plus_constant(1), parameter("session.disable_cpu_ep_fallback", "1"))
    with Engine(tmp_path, options=EngineOptions(exit_on_error=False)) as engine:
        assert "fallback to CPU EP has been explicitly disabled" in str(engine.failures["m"])


def test_the_format_of_a_model_file_may_be_said(tmp_path: Path) -> None:
    for name, form in (("onnx", "ONNX"), ("ort", "ORT")):
        text = 'backend: "onnxruntime" default_model_filename: "weights.bin"'
        folder = models.write(
            tmp_path, name, models.plus_constant(1), text + parameter("session.load_model_format", form)
        )
        (folder / "1" / "model.onnx").rename(folder / "1" / "weights.bin")
    with Engine(tmp_path, options=EngineOptions(exit_on_error=False)) as engine:
        assert engine.infer("onnx", np.array([[1]], np.int32))["OUTPUT0"].item() == 2
        assert "weights.bin' cannot be loaded: " in str(engine.failures["ort"])


SPINNING: Final = parameter("session.intra_op.allow_spinning", "1")
STOPPED: Final = parameter("session.force_spinning_stop", "1")
LONG: Final = 0.2


def burnt(folder: Path, text: str, rounds: int) -> list[float]:
    """Seconds of CPU that the thread of a session has taken after each of many short runs with pauses."""
    # just large enough to be shared by two threads: what the thread takes is the waiting, not the work
    shape = [64, 64]
    given, made = ([models.tensor(name, "FP32", shape)] for name in ("X", "Y"))
    built = models.model([helper.make_node("MatMul", ["X", "X"], ["Y"])], given, made)
    two = parameter("intra_op_thread_count", "2") + models.ONE_INSTANCE
    models.write(folder, "m", built, two + text)
    value = np.ones(shape, np.float32)
    taken: list[float] = []
    # other engines of this process may have such threads as well
    others = set(thread_names(os.getpid()))
    with Engine(folder) as engine:

        def own() -> list[int]:
            names = thread_names(os.getpid()).items()
            return [tid for tid, name in names if name == "kushi-load" and tid not in others]

        # the one that made the session may be on its way out
        eventually(lambda: len(own()) == 1, "one thread of the session's own")
        (thread,) = own()
        engine.infer("m", value)
        before = cpu_seconds(thread)
        while len(taken) < rounds and (not taken or taken[-1] < LONG):
            engine.infer("m", value)
            threading.Event().wait(0.02)
            taken.append(cpu_seconds(thread) - before)
    return taken


def cpu_seconds(thread: int) -> float:
    """The CPU time of a thread of this process: Linux makes the number of its clock from the thread's."""
    per_thread, precise = 4, 2
    return time.clock_gettime((~thread << 3) | per_thread | precise)


@pytest.mark.clock
def test_idle_threads_burn_their_cores_only_where_the_configuration_says_so(tmp_path: Path) -> None:
    spinning = burnt(tmp_path / "spinning", SPINNING, 2000)
    assert spinning[-1] >= LONG
    for name, text in {"quiet": "", "stopped": SPINNING + STOPPED}.items():
        assert burnt(tmp_path / name, text, len(spinning))[-1] < LONG / 2
