"""
What stands in the payloads of frames.

All numbers are little endian. A batch is a head for each request, its parts in the order of the head, and behind all of
them the bytes of the tensors; their offsets count from the start of the payload. Answers are written in the same way,
but without offsets: each tensor begins at the next multiple of the alignment. The layout is that of
`native/crates/engine-worker/src/batch_message.rs` and `answer_message.rs`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from .datatypes import BY_NUMBER
from .failures import LONGEST
from .tensors import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .responses import InferenceResponse

    # the position of the request, the flags, the response and its tensors by their outputs
    Answer = tuple[int, int, Optional[InferenceResponse], list[tuple[int, Tensor]]]

__all__ = [
    "ALIGNMENT",
    "FINAL",
    "LENGTH",
    "Incoming",
    "TensorInfo",
    "aligned",
    "dimensions",
    "read_batch",
    "response_parts",
    "write_responses",
]

# flags of the sequence, priority, time in microseconds, correlation id, lengths of the request id, the parameters, the
# correlation id as text and the context of the trace, number of inputs and of wanted outputs
_REQUEST = struct.Struct("<IIQQIIIIII")
_REQUEST_BYTES = _REQUEST.size
# position, data type, number of dimensions, offset, length
_TENSOR = struct.Struct("<IIIQQ")
_TENSOR_BYTES = _TENSOR.size
_WANTED = struct.Struct("<I")
# position of the request, flags, code of the error, lengths of its text and of the parameters, number of tensors
_RESPONSE = struct.Struct("<IIIIII")
# position of the output, data type, number of dimensions, length
_OUTPUT = struct.Struct("<IIIQ")
LENGTH = struct.Struct("<I")
_LENGTH_BYTES = LENGTH.size
ALIGNMENT = 64
_GAPS = [bytes(length) for length in range(ALIGNMENT)]

HAS_RESPONSE = 1
FINAL = 2
HAS_ERROR = 4

_DIMENSIONS = [struct.Struct(f"<{count}q") for count in range(9)]

_MOST_HEADS = 1024
# of outputs, by position, data type, length and shape: most models answer with the same ones again and again
_output_heads: dict[tuple[Any, ...], bytes] = {}


class TensorInfo:
    """An input or an output of the model, by its position"""

    __slots__ = ("datatype", "name")

    def __init__(self, name: str, datatype: str) -> None:
        self.name = name
        self.datatype = datatype


class Incoming(NamedTuple):
    """A request as it came"""

    inputs: list[Tensor]
    # none: all outputs
    wanted: list[str] | None
    flags: int
    priority: int
    timeout: int
    correlation_id: int | str
    request_id: str
    parameters: str
    # none: it is not traced, or no other one hears of it
    trace_context: str | None


def read_batch(
    payload: Any,
    count: int,
    inputs: Sequence[TensorInfo],
    outputs: Sequence[TensorInfo],
) -> list[Incoming]:
    """The requests of a batch"""
    view = memoryview(payload)
    at = 0
    requests = []
    for _ in range(count):
        (
            flags,
            priority,
            timeout,
            correlation,
            id_length,
            parameters_length,
            text_length,
            trace_length,
            given,
            wanted,
        ) = _REQUEST.unpack_from(view, at)
        at += _REQUEST_BYTES
        request_id = parameters = ""
        trace = None
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
        if trace_length:
            trace = str(view[at : at + trace_length], "utf-8")
            at += trace_length
        tensors = []
        for _ in range(given):
            position, number, rank, offset, length = _TENSOR.unpack_from(view, at)
            at += _TENSOR_BYTES
            shape = list(dimensions(rank).unpack_from(view, at))
            at += 8 * rank
            data = view[offset : offset + length]
            tensors.append(Tensor.from_wire(inputs[position].name, BY_NUMBER[number], shape, data))
        names = None
        if wanted:
            names = [outputs[position].name for (position,) in _WANTED.iter_unpack(view[at : at + 4 * wanted])]
            at += 4 * wanted
        requests.append(
            Incoming(tensors, names, flags, priority, timeout, correlation_id, request_id, parameters, trace)
        )
    return requests


def dimensions(rank: int) -> struct.Struct:
    """A shape with so many of them"""
    return _DIMENSIONS[rank] if rank < len(_DIMENSIONS) else struct.Struct(f"<{rank}q")


def response_parts(
    response: InferenceResponse, wanted: Sequence[str] | None, positions: dict[str, int]
) -> list[tuple[int, Tensor]]:
    """The tensors of a response that were asked for, in the order of the outputs"""
    found: dict[int, Tensor] = {}
    for tensor in response.output_tensors():
        name = tensor.name()
        position = positions.get(name)
        if position is not None and (wanted is None or name in wanted):
            # of two with one name the first, which is the one that clients find
            found.setdefault(position, tensor)
    return sorted(found.items()) if len(found) > 1 else list(found.items())


def write_responses(responses: Sequence[Answer]) -> list[Any]:
    """The payload of answers"""
    pieces: list[Any] = []
    tensors: list[Any] = []
    for position, flags, response, parts in responses:
        error = None if response is None else response.error()
        if error is not None:
            text = error.message()[:LONGEST].encode("utf-8", "replace")
            pieces.append(_RESPONSE.pack(position, flags | HAS_ERROR, error.code(), len(text), 0, 0))
            pieces.append(text)
            continue
        given = 0 if response is None else HAS_RESPONSE
        parameters = b"" if response is None else response.parameters().encode()
        pieces.append(_RESPONSE.pack(position, flags | given, 0, 0, len(parameters), len(parts)))
        if parameters:
            pieces.append(parameters)
        for place, tensor in parts:
            data = tensor.wire()
            pieces.append(_output_head(place, tensor, len(data)))
            tensors.append(data)
    return aligned(pieces, tensors)


def aligned(pieces: list[Any], tensors: list[Any]) -> list[Any]:
    """
    A payload: these pieces, with their length before them, since the server copies them before it reads them; behind
    them the bytes of tensors, each at a multiple of the alignment
    """
    at = sum(map(len, pieces))
    pieces.insert(0, LENGTH.pack(at))
    if tensors:
        at += _LENGTH_BYTES
        for data in tensors:
            gap = -at % ALIGNMENT
            if gap:
                pieces.append(_GAPS[gap])
            pieces.append(data)
            at += gap + len(data)
    return pieces


def _output_head(place: int, tensor: Tensor, length: int) -> bytes:
    shape = tensor.shape()
    key = (place, tensor.triton_dtype(), length, *shape)
    head = _output_heads.get(key)
    if head is None:
        if len(_output_heads) >= _MOST_HEADS:
            _output_heads.clear()
        rank = len(shape)
        head = _OUTPUT.pack(place, tensor.triton_dtype(), rank, length) + dimensions(rank).pack(*shape)
        _output_heads[key] = head
    return head
