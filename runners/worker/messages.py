"""
What stands in the payloads of frames.

All numbers are little endian. A batch is a head for each request, its parts in the order of the head, and behind all of
them the bytes of the tensors; their offsets count from the start of the payload. The layout is that of
`native/crates/engine-worker/src/message.rs`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from .datatypes import BY_NAME, BY_NUMBER
from .tensors import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .responses import InferenceResponse

__all__ = [
    "FINAL",
    "Incoming",
    "TensorInfo",
    "read_batch",
    "response_parts",
    "write_responses",
]

# flags of the sequence, priority, time in microseconds, correlation id, lengths of the request id, the parameters and
# the correlation id as text, number of inputs and of wanted outputs
_REQUEST = struct.Struct("<IIQQIIIII")
# position, data type, number of dimensions, offset, length
_TENSOR = struct.Struct("<IIIQQ")
_WANTED = struct.Struct("<I")
# position of the request, flags, code of the error, lengths of its text and of the parameters, number of tensors
_RESPONSE = struct.Struct("<IIIIII")
_ALIGNMENT = 64

HAS_RESPONSE = 1
FINAL = 2
HAS_ERROR = 4

_DIMENSIONS = [struct.Struct(f"<{count}q") for count in range(9)]


class TensorInfo:
    """An input or an output of the model, by its position"""

    __slots__ = ("datatype", "name")

    def __init__(self, name: str, datatype: str) -> None:
        self.name = name
        self.datatype = datatype


class Incoming:
    """A request as it came"""

    __slots__ = ("correlation_id", "flags", "inputs", "parameters", "priority", "request_id", "timeout", "wanted")

    def __init__(  # noqa: PLR0917
        self,
        inputs: list[Tensor],
        wanted: list[str],
        flags: int,
        priority: int,
        timeout: int,
        correlation_id: int | str,
        request_id: str,
        parameters: str,
    ) -> None:
        self.inputs = inputs
        self.wanted = wanted
        self.flags = flags
        self.priority = priority
        self.timeout = timeout
        self.correlation_id = correlation_id
        self.request_id = request_id
        self.parameters = parameters


def read_batch(
    payload: Any,
    count: int,
    inputs: Sequence[TensorInfo],
    outputs: Sequence[TensorInfo],
) -> list[Incoming]:
    """The requests of a batch"""
    view = memoryview(payload)
    all_outputs = [output.name for output in outputs]
    at = 0
    requests = []
    for _ in range(count):
        flags, priority, timeout, correlation, id_length, parameters_length, text_length, given, wanted = (
            _REQUEST.unpack_from(view, at)
        )
        at += _REQUEST.size
        request_id = parameters = ""
        correlation_id: int | str = correlation
        if id_length:
            request_id = str(view[at : at + id_length], "utf-8")
            at += id_length
        if parameters_length:
            parameters = str(view[at : at + parameters_length], "utf-8")
            at += parameters_length
        if text_length:
            correlation_id = str(view[at : at + text_length], "utf-8")
            at += text_length
        tensors = []
        for _ in range(given):
            tensor, at = _read_tensor(view, at, inputs)
            tensors.append(tensor)
        if wanted:
            names = [outputs[position].name for (position,) in _WANTED.iter_unpack(view[at : at + 4 * wanted])]
            at += 4 * wanted
        else:
            names = list(all_outputs)
        requests.append(Incoming(tensors, names, flags, priority, timeout, correlation_id, request_id, parameters))
    return requests


def _read_tensor(view: memoryview, at: int, infos: Sequence[TensorInfo]) -> tuple[Tensor, int]:
    position, number, rank, offset, length = _TENSOR.unpack_from(view, at)
    at += _TENSOR.size
    shape = list(_dimensions(rank).unpack_from(view, at))
    at += 8 * rank
    tensor = Tensor.from_wire(infos[position].name, BY_NUMBER[number].name, shape, view[offset : offset + length])
    return tensor, at


def _dimensions(rank: int) -> struct.Struct:
    return _DIMENSIONS[rank] if rank < len(_DIMENSIONS) else struct.Struct(f"<{rank}q")


def response_parts(
    response: InferenceResponse, wanted: Sequence[str], positions: dict[str, int]
) -> list[tuple[int, Tensor]]:
    """The tensors of a response that were asked for, in the order of the outputs"""
    found: dict[int, Tensor] = {}
    for tensor in response.output_tensors():
        position = positions.get(tensor.name())
        if position is not None and tensor.name() in wanted:
            found[position] = tensor
    return sorted(found.items())


def write_responses(
    responses: Sequence[tuple[int, int, InferenceResponse | None, list[tuple[int, Tensor]]]],
) -> list[Any]:
    """The payload of answers: for each the position of the request, the flags, the response and its tensors"""
    heads = []
    tensors = []
    for position, flags, response, parts in responses:
        error = None if response is None else response.error()
        if error is not None:
            text = error.message().encode("utf-8", "replace")
            heads.append(_RESPONSE.pack(position, flags | HAS_ERROR, error.code(), len(text), 0, 0))
            heads.append(text)
            continue
        given = 0 if response is None else HAS_RESPONSE
        parameters = b"" if response is None else response.parameters().encode()
        heads.append(_RESPONSE.pack(position, flags | given, 0, 0, len(parameters), len(parts)))
        heads.append(parameters)
        for place, tensor in parts:
            data = tensor.wire()
            tensors.append((len(heads), place, tensor, data))
            # its head is written when its offset is known
            heads.append(b"")
    at = sum(len(head) for head in heads)
    at += sum(_TENSOR.size + 8 * len(tensor.shape()) for _, _, tensor, _ in tensors)
    pieces: list[Any] = heads
    for index, place, tensor, data in tensors:
        gap = -at % _ALIGNMENT
        shape = tensor.shape()
        head = _TENSOR.pack(place, BY_NAME[tensor.datatype].number, len(shape), at + gap, len(data))
        pieces[index] = head + _dimensions(len(shape)).pack(*shape)
        if gap:
            pieces.append(bytes(gap))
        pieces.append(data)
        at += gap + len(data)
    return pieces
