"""The forms of an ONNX model, made by the tools of ONNX Runtime and OpenVINO"""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from typing import TYPE_CHECKING, Any

import onnx
import onnxruntime

from ..errors import Unsupported
from ..export.onnx_weights import save

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MODEL_FILES", "Reader", "in_silence", "make"]

MODEL_FILES = {"openvino": "model.xml"}
"""Of forms that are no ONNX files"""
_MOST_CHARACTERS = 400


def make(form: str, source: Path, directory: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes the form of the ONNX file `source` into `directory`; `rows` are the samples, one by one"""
    target = directory / "model.onnx"
    try:
        with in_silence():
            match form:
                case "simplified":
                    _simplify(source, target)
                case "fp16":
                    _halve(source, target)
                case "int8-dynamic":
                    _quantization().quantize_dynamic(_without_shapes(source), target)
                case "int8-static":
                    _quantization().quantize_static(_prepared(source, target), target, Reader(rows))
                case "openvino":
                    _to_openvino(source, directory / MODEL_FILES["openvino"])
    except ImportError as error:
        install = "openvino" if form == "openvino" else "optimize"
        raise Unsupported(f'{error}: pip install "kushi[{install}]"') from error
    except Exception as error:
        # the tools raise whatever their insides meet
        raise Unsupported(_text(error)) from error
    for leftover in directory.glob("prepared*"):
        leftover.unlink()


def _simplify(source: Path, target: Path) -> None:
    options = onnxruntime.SessionOptions()
    # the next level has operators that only some processors have
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(target)
    onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def _halve(source: Path, target: Path) -> None:
    float16 = import_module("onnxruntime.transformers.float16")
    model = onnx.load(source)
    types = {weights.data_type for weights in model.graph.initializer}
    if onnx.TensorProto.FLOAT16 in types and onnx.TensorProto.FLOAT not in types:
        raise Unsupported("its weights are in half precision already")
    halved = float16.convert_float_to_float16(model, keep_io_types=True)
    _sort(halved.graph)
    save(halved, target)


def _sort(graph: onnx.GraphProto) -> None:
    """Each node behind those that make its inputs, as ONNX wants it; the converter puts its casts at the end"""
    makers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    needs = {index: {makers[name] for name in _inputs(node) if name in makers} for index, node in enumerate(graph.node)}
    try:
        nodes = [graph.node[index] for index in TopologicalSorter(needs).static_order()]
    except CycleError:
        # the converter gives a name that is made in a graph and around it as well one meaning: engines tell them apart
        return
    del graph.node[:]
    graph.node.extend(nodes)
    for node in graph.node:
        for inner in _graphs(node):
            _sort(inner)


def _inputs(node: onnx.NodeProto) -> Iterator[str]:
    """Its own, and what the graphs in it take from around them"""
    yield from node.input
    for graph in _graphs(node):
        made = {name for inner in graph.node for name in inner.output}
        own = made | {given.name for given in graph.input} | {weights.name for weights in graph.initializer}
        used = (name for inner in graph.node for name in _inputs(inner))
        yield from (name for name in (*used, *(output.name for output in graph.output)) if name not in own)


def _graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _without_shapes(source: Path) -> onnx.ModelProto:
    """The quantiser turns weights around, and would find them noted as they were"""
    model = onnx.load(source)
    del model.graph.value_info[:]
    return model


def _prepared(source: Path, target: Path) -> Path:
    """With the shapes on the way, which the quantiser asks for"""
    prepared = target.with_name("prepared.onnx")
    _quantization().shape_inference.quant_pre_process(source, prepared, skip_symbolic_shape=True)
    return prepared


def _to_openvino(source: Path, target: Path) -> None:
    openvino = import_module("openvino")
    # halved weights would be another form
    openvino.save_model(openvino.convert_model(source), target, compress_to_fp16=False)


def _quantization() -> Any:  # noqa: ANN401 - a module
    return import_module("onnxruntime.quantization")


class Reader:
    """What the quantiser takes its samples from"""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows = iter(rows)

    def get_next(self) -> Mapping[str, Any] | None:
        return next(self._rows, None)


@contextlib.contextmanager
def in_silence() -> Iterator[None]:
    """
    The tools print and log advice about how they are called. When one of OpenVINO's fails, it leaves the log of the
    whole program changed
    """
    root = logging.root
    before = root.manager.disable
    level, filters, handlers = root.level, root.filters[:], root.handlers[:]
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)
        root.setLevel(level)
        root.filters[:], root.handlers[:] = filters, handlers


def _text(error: Exception) -> str:
    """In one line, without the places in the sources of a tool"""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith("Check '")]
    return " ".join(said)[:_MOST_CHARACTERS] or type(error).__name__
