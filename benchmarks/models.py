"""The models that the benchmarks serve, made on the spot, and Triton repositories around them. The weights never vary.

* add_sub: two INT32 vectors of 16, their sum and difference: all that is measured is the server.
* mlp: 128-512-512-512-10: so short that batching decides, so small that the server still shows.
* square: 128-512-512-512-128: like mlp, and one can follow another.
* convnet: a ResNet-18 of half the width on 224x224 pictures, 4.5 ms on a server core of 2025: it needs its own thread.
* large: 100 MB of weights.
* wide: 600 KB in, the first ten numbers out: what costs is the way of the tensor.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.options import BUILD

__all__ = ["MODELS", "Entry", "Input", "Model", "inputs", "model_file", "write_repository"]

OPSET = 17
IR_VERSION = 8
WEIGHT_SEED = 7
INPUT_SEED = 3
LARGE_WIDTH = 2048
LARGE_LAYERS = 6
WIDE = 150_000


@dataclass(frozen=True)
class Input:
    name: str
    datatype: str
    dims: tuple[int, ...]


@dataclass(frozen=True)
class Model:
    name: str
    inputs: tuple[Input, ...]
    outputs: tuple[tuple[str, int], ...]


MODELS = {
    model.name: model
    for model in (
        Model(
            "add_sub",
            (Input("INPUT0", "INT32", (16,)), Input("INPUT1", "INT32", (16,))),
            (("OUTPUT0", 16), ("OUTPUT1", 16)),
        ),
        Model("mlp", (Input("INPUT", "FP32", (128,)),), (("OUTPUT", 10),)),
        Model("square", (Input("INPUT", "FP32", (128,)),), (("OUTPUT", 128),)),
        Model("convnet", (Input("INPUT", "FP32", (3, 224, 224)),), (("OUTPUT", 1000),)),
        Model("wide", (Input("INPUT", "FP32", (WIDE,)),), (("OUTPUT", 10),)),
        Model("large", (Input("INPUT", "FP32", (LARGE_WIDTH,)),), (("OUTPUT", LARGE_WIDTH),)),
    )
}

NUMPY_TYPES: dict[str, type[np.generic]] = {"INT32": np.int32, "FP32": np.float32}
CONFIG_TYPES = {"INT32": "TYPE_INT32", "FP32": "TYPE_FP32"}
ONNX_TYPES = {"INT32": TensorProto.INT32, "FP32": TensorProto.FLOAT}


@dataclass(frozen=True)
class Entry:
    """One directory of a repository. `name` differs from `model` where one model has several configurations."""

    model: str
    name: str
    instances: int = 1
    max_batch_size: int = 32
    batching: str | None = "dynamic_batching { }"
    parameters: dict[str, str] = field(default_factory=dict)
    backend: str = "onnxruntime"


def inputs(model: str, rows: int) -> dict[str, npt.NDArray[np.generic]]:
    random = np.random.default_rng(INPUT_SEED)
    return {
        spec.name: (random.random((rows, *spec.dims)) * (100 if spec.datatype == "INT32" else 1)).astype(
            NUMPY_TYPES[spec.datatype]
        )
        for spec in MODELS[model].inputs
    }


def write_repository(directory: Path, entries: list[Entry]) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    for entry in entries:
        version = directory / entry.name / "1"
        version.mkdir(parents=True)
        (version / "model.onnx").symlink_to(model_file(entry.model))
        (version.parent / "config.pbtxt").write_text(_config(entry), encoding="utf-8")
    return directory


def model_file(name: str) -> Path:
    path = BUILD / "models" / f"{name}.onnx"
    if not path.exists() or path.stat().st_mtime < Path(__file__).stat().st_mtime:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        onnx.save(_build(name), str(unfinished))
        unfinished.replace(path)
    return path


def _config(entry: Entry) -> str:
    model = MODELS[entry.model]
    lines = [f'name: "{entry.name}"', f'backend: "{entry.backend}"', f"max_batch_size: {entry.max_batch_size}"]
    for spec in model.inputs:
        dims = ", ".join(map(str, spec.dims))
        lines.append(f'input {{ name: "{spec.name}" data_type: {CONFIG_TYPES[spec.datatype]} dims: [ {dims} ] }}')
    result_type = CONFIG_TYPES[model.inputs[0].datatype]
    lines += [
        f'output {{ name: "{name}" data_type: {result_type} dims: [ {width} ] }}' for name, width in model.outputs
    ]
    lines.append('default_model_filename: "model.onnx"')
    lines.append(f"instance_group {{ kind: KIND_CPU count: {entry.instances} }}")
    if entry.batching:
        lines.append(entry.batching)
    threads = {"openvino": ("INFERENCE_NUM_THREADS", str(entry.instances))}
    one_thread = dict([threads.get(entry.backend, ("intra_op_thread_count", "1"))])
    for key, value in {**one_thread, **entry.parameters}.items():
        lines.append(f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}')
    return "\n".join(lines) + "\n"


def _build(name: str) -> onnx.ModelProto:
    graph = _Graph()
    match name:
        case "add_sub":
            graph.node("Add", ["INPUT0", "INPUT1"], "OUTPUT0")
            graph.node("Sub", ["INPUT0", "INPUT1"], "OUTPUT1")
        case "mlp":
            graph.dense_layers("INPUT", [128, 512, 512, 512, 10], "OUTPUT")
        case "square":
            graph.dense_layers("INPUT", [128, 512, 512, 512, 128], "OUTPUT")
        case "wide":
            graph.first("INPUT", 10, "OUTPUT")
        case "large":
            graph.dense_layers("INPUT", [LARGE_WIDTH] * (LARGE_LAYERS + 1), "OUTPUT")
        case "convnet":
            graph.residual_network("INPUT", "OUTPUT")
        case _:
            raise ValueError(f"no benchmark model {name}")
    return graph.finish(MODELS[name])


class _Graph:
    """Collects nodes and weights in order, so that the same seed gives the same file."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(WEIGHT_SEED)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []

    def node(self, operator: str, sources: list[str], result: str = "", **attributes: int | list[int]) -> str:
        result = result or f"{operator.lower()}{len(self._nodes)}"
        node = helper.make_node(operator, sources, [result])
        node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        self._nodes.append(node)
        return result

    def weight(self, shape: tuple[int, ...], scale: float) -> str:
        values = self._random.standard_normal(shape, dtype=np.float32) * np.float32(scale)
        name = f"weight{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(values, name))
        return name

    def first(self, source: str, count: int, result: str) -> None:
        for name, value in (("from", 0), ("to", count), ("axis", 1)):
            self._weights.append(numpy_helper.from_array(np.array([value]), name))
        self.node("Slice", [source, "from", "to", "axis"], result)

    def dense(self, source: str, width_in: int, width_out: int, result: str = "") -> str:
        weight = self.weight((width_in, width_out), width_in**-0.5)
        bias = self.weight((width_out,), 0.01)
        return self.node("Gemm", [source, weight, bias], result)

    def dense_layers(self, source: str, widths: list[int], result: str) -> None:
        for width_in, width_out in pairwise(widths[:-1]):
            source = self.node("Relu", [self.dense(source, width_in, width_out)])
        self.dense(source, widths[-2], widths[-1], result)

    def convolution(self, source: str, channels_in: int, channels_out: int, kernel: int, stride: int) -> str:
        weight = self.weight((channels_out, channels_in, kernel, kernel), (2 / (channels_in * kernel**2)) ** 0.5)
        bias = self.weight((channels_out,), 0.01)
        return self.node(
            "Conv",
            [source, weight, bias],
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
        )

    def residual_block(self, source: str, channels_in: int, channels_out: int, stride: int) -> str:
        main = self.node("Relu", [self.convolution(source, channels_in, channels_out, kernel=3, stride=stride)])
        main = self.convolution(main, channels_out, channels_out, kernel=3, stride=1)
        if channels_in != channels_out or stride != 1:
            source = self.convolution(source, channels_in, channels_out, kernel=1, stride=stride)
        return self.node("Relu", [self.node("Add", [main, source])])

    def residual_network(self, source: str, result: str) -> None:
        channels = 32
        source = self.node("Relu", [self.convolution(source, 3, channels, kernel=7, stride=2)])
        source = self.node("MaxPool", [source], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
        for wider, stride in ((32, 1), (32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1)):
            source = self.residual_block(source, channels, wider, stride)
            channels = wider
        pooled = self.node("Flatten", [self.node("GlobalAveragePool", [source])], axis=1)
        self.dense(pooled, channels, 1000, result)

    def finish(self, model: Model) -> onnx.ModelProto:
        element = ONNX_TYPES[model.inputs[0].datatype]
        graph = helper.make_graph(
            self._nodes,
            model.name,
            [helper.make_tensor_value_info(spec.name, element, ["N", *spec.dims]) for spec in model.inputs],
            [helper.make_tensor_value_info(name, element, ["N", width]) for name, width in model.outputs],
            self._weights,
        )
        built = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
        onnx.checker.check_model(built)
        return built
