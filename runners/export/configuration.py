"""The config.pbtxt of an exported model, written as a person would write it"""

import json
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from ..errors import Unsupported
from ..repository.messages import DataType
from ..repository.tensors import TensorInfo, config_type, shape_text

__all__ = ["check_batching", "configuration"]

_ANY = -1


def check_batching(tensors: Iterable[TensorInfo]) -> None:
    """Refuses tensors without a batch dimension in front"""
    for tensor in tensors:
        if not tensor.dims or tensor.dims[0] != _ANY:
            raise Unsupported(
                f"'{tensor.name}' has the shape {shape_text(tensor.dims)}, however many rows there are; expected the "
                "batch as its first dimension. Change the model, or export it without batches: --max-batch-size 0"
            )


def configuration(
    name: str,
    max_batch_size: int,
    inputs: Iterable[TensorInfo],
    outputs: Iterable[TensorInfo],
    *,
    backend: str = "onnxruntime",
    parameters: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The text for a model of these tensors, which have the batch dimension where `max_batch_size` is not 0"""
    lines = [f"name: {_quoted(name)}", f"backend: {_quoted(backend)}", f"max_batch_size: {max_batch_size}"]
    batching = max_batch_size > 0
    lines += ["input [", ",\n".join(_blocks(inputs, batching=batching)), "]"]
    lines += ["output [", ",\n".join(_blocks(outputs, batching=batching)), "]"]
    if max_batch_size > 1:
        lines += ["dynamic_batching { }"]
    for key, value in parameters.items():
        lines += [f"parameters {{ key: {_quoted(key)} value {{ string_value: {_quoted(value)} }} }}"]
    return "\n".join([*lines, ""])


def _blocks(tensors: Iterable[TensorInfo], *, batching: bool) -> Iterator[str]:
    for tensor in tensors:
        dims = tensor.dims[batching:]
        listed = ", ".join(map(str, dims or [1]))
        scalar_rows = " reshape { shape: [ ] }" if batching and not dims else ""
        data_type = DataType.Name(config_type(tensor.datatype))
        yield f"  {{ name: {_quoted(tensor.name)} data_type: {data_type} dims: [ {listed} ]{scalar_rows} }}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
