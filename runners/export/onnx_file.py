"""The ONNX file of an original: a batch dimension by that name, nothing of the machine that made it"""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
import torch

from ..errors import Unsupported
from ..repository.tensors import TensorInfo
from .onnx_weights import save
from .original import Original
from .tracing import quiet, reason

__all__ = ["write"]

_ANY = -1
_BATCH = "batch"
_OTHER_WAY = "; where its Python code is at hand, export the module itself, or what torch.export.save writes"
_TYPES = {"FLOAT": "FP32", "DOUBLE": "FP64", "FLOAT16": "FP16", "BFLOAT16": "BF16"}


def write(original: Original, path: Path, opset: int, *, batching: bool) -> tuple[list[TensorInfo], list[TensorInfo]]:
    """Writes the file, with the weights beside it where they are large; answers its inputs and outputs"""
    scratch = path.with_name("scratch")
    scratch.mkdir()
    try:
        with quiet():
            _export(original, scratch / path.name, opset)
    except Exception as error:
        other = "" if isinstance(original.exportable, torch.export.ExportedProgram) else _OTHER_WAY
        raise Unsupported(f"{original.subject} cannot be exported to ONNX: {reason(error)}{other}") from error
    model = onnx.load(scratch / path.name)
    for file in scratch.iterdir():
        file.unlink()
    scratch.rmdir()
    _strip(model.graph)
    if batching:
        _name_batch([*model.graph.input, *model.graph.output])
    save(model, path)
    onnx.checker.check_model(path, full_check=True)
    return [_info(tensor) for tensor in model.graph.input], [_info(tensor) for tensor in model.graph.output]


def _export(original: Original, path: Path, opset: int) -> None:
    names = {"input_names": list(original.input_names), "output_names": list(original.output_names)}
    if isinstance(original.exportable, torch.export.ExportedProgram):
        torch.onnx.export(original.exportable, (), path, dynamo=True, opset_version=opset, verbose=False, **names)
        return
    places = zip(original.input_names, original.samples.varying(), strict=True)
    axes = {name: {place: f"{name}_{place}" for place in varying} for name, varying in places}
    with _without_output():
        torch.onnx.export(
            original.exportable,
            original.samples.draw(2),
            path,
            dynamo=False,
            opset_version=opset,
            dynamic_axes=axes,
            **names,
        )


@contextmanager
def _without_output() -> Iterator[None]:
    """What it cannot export the older exporter prints, past Python's own standard output"""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _strip(graph: Any) -> None:  # noqa: ANN401 - a message of ONNX
    """The exporter notes source files and stack traces at every node"""
    parts: list[Any] = [graph, *graph.node, *graph.initializer, *graph.input, *graph.output]
    for part in parts:
        part.doc_string = ""
        del part.metadata_props[:]
    # shapes on the way, which ONNX Runtime finds out itself
    del graph.value_info[:]


def _name_batch(tensors: Iterable[Any]) -> None:
    for tensor in tensors:
        dims = tensor.type.tensor_type.shape.dim
        if dims and not dims[0].HasField("dim_value"):
            dims[0].dim_param = _BATCH


def _info(tensor: Any) -> TensorInfo:  # noqa: ANN401 - a message of ONNX
    kind = tensor.type.tensor_type
    name = onnx.TensorProto.DataType.Name(kind.elem_type)
    dims = tuple(dim.dim_value if dim.HasField("dim_value") else _ANY for dim in kind.shape.dim)
    return TensorInfo(tensor.name, _TYPES.get(name, name), dims)
