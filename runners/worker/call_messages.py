"""
What stands in the payloads of requests to other models, and of the answers to them.

Numbers are little endian. A head comes first, in a request behind the length of all heads; then its texts, then a head
and a name for each tensor; behind all of them the bytes of the tensors, each at the next multiple of the alignment. The
layout is that of `native/crates/engine-worker/src/call_message.rs`.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

from .datatypes import BY_NUMBER
from .errors import TritonError
from .messages import ALIGNMENT, LENGTH, aligned, dimensions
from .responses import InferenceResponse
from .tensors import Tensor

if TYPE_CHECKING:
    from .requests import InferenceRequest

__all__ = ["read_answer", "write_call"]

# version, timeout in microseconds, batch that is executed, correlation id, flags, lengths of the model's name, the
# request id, the correlation id as text and the parameters, number of inputs and of wanted outputs
_CALL = struct.Struct("<qQQQIIIIIII")
# lengths of the name, data type, number of dimensions, length
_TENSOR = struct.Struct("<IIIQ")
# code of the error, lengths of its text and of the parameters, number of outputs
_ANSWER = struct.Struct("<IIII")
_NO_BATCH = (1 << 64) - 1
# beside those of sequences
_DECOUPLED = 4

_MOST_HEADS = 1024
# of tensors, by what stands in them: most models ask with the same ones again and again
_heads: dict[tuple[Any, ...], bytes] = {}
# of wanted outputs, by their names
_names: dict[tuple[str, ...], bytes] = {}


def write_call(request: InferenceRequest, batch: int | None, *, decoupled: bool) -> list[Any]:
    """The payload of a request on behalf of a batch"""
    model, request_id = request.model_name().encode(), request.request_id().encode()
    parameters = request.parameters().encode() if request.parameters() != "{}" else b""
    correlation_id = request.correlation_id()
    number, name = (0, correlation_id.encode()) if isinstance(correlation_id, str) else (correlation_id, b"")
    inputs = request.inputs()
    wanted = request.requested_output_names()
    head = _CALL.pack(
        request.model_version(),
        request.timeout(),
        _NO_BATCH if batch is None else batch,
        number,
        (request.flags() & 3) | (_DECOUPLED if decoupled else 0),
        len(model),
        len(request_id),
        len(name),
        len(parameters),
        len(inputs),
        len(wanted),
    )
    pieces = [head, model, request_id, name, parameters]
    tensors = []
    for tensor in inputs:
        data = tensor.wire()
        pieces.append(_head(tensor, len(data)))
        tensors.append(data)
    pieces.append(_names.get(tuple(wanted)) or _written(wanted))
    return aligned(pieces, tensors)


def _written(names: list[str]) -> bytes:
    written = b"".join(LENGTH.pack(len(name)) + name for name in map(str.encode, names))
    if len(_names) >= _MOST_HEADS:
        _names.clear()
    _names[tuple(names)] = written
    return written


def _head(tensor: Tensor, length: int) -> bytes:
    shape = tensor.shape()
    key = (tensor.name(), tensor.triton_dtype(), length, *shape)
    head = _heads.get(key)
    if head is None:
        if len(_heads) >= _MOST_HEADS:
            _heads.clear()
        name = tensor.name().encode()
        rank = len(shape)
        head = _TENSOR.pack(len(name), tensor.triton_dtype(), rank, length) + dimensions(rank).pack(*shape) + name
        _heads[key] = head
    return head


def read_answer(payload: Any) -> InferenceResponse:
    """A response of another model, or its error"""
    view = memoryview(payload)
    code, length, parameters_length, count = _ANSWER.unpack_from(view)
    at = _ANSWER.size
    if length:
        return InferenceResponse(error=TritonError(str(view[at : at + length], "utf-8"), code))
    parameters = None
    if parameters_length:
        parameters = json.loads(bytes(view[at : at + parameters_length]))
        at += parameters_length
    outputs = []
    for _ in range(count):
        name_length, number, rank, length = _TENSOR.unpack_from(view, at)
        at += _TENSOR.size
        shape = list(dimensions(rank).unpack_from(view, at))
        at += 8 * rank
        outputs.append((str(view[at : at + name_length], "utf-8"), number, shape, length))
        at += name_length
    tensors = []
    for name, number, shape, length in outputs:
        at += -at % ALIGNMENT
        tensors.append(Tensor.from_wire(name, BY_NUMBER[number], shape, view[at : at + length]))
        at += length
    return InferenceResponse(tensors, parameters=parameters)
