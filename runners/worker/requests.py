"""Requests: those that a model is asked, and those that it makes to ask others"""

from __future__ import annotations

import asyncio
import enum
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from . import server
from .errors import TritonError, TritonModelException
from .given import integer, items, text, unsigned
from .parameters import as_json
from .responses import InferenceResponse, InferenceResponseSender, ResponseIterator
from .tensors import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .server import Answers

__all__ = [
    "RELEASE_ALL",
    "RELEASE_RESCHEDULE",
    "IncomingRequest",
    "InferenceRequest",
    "InferenceTrace",
    "MemoryType",
    "PreferredMemory",
]

RELEASE_ALL = 1
RELEASE_RESCHEDULE = 2

_REQUIRED: Any = object()

# Each thread waits for one answer; they are made when they are needed. Of one event loop: models in one process would
# otherwise wait for threads that wait for them.
_waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = WeakKeyDictionary()
_MOST_WAITING = 256


class MemoryType(enum.Enum):
    """Where tensors lie"""

    TRITONSERVER_MEMORY_GPU = 0
    TRITONSERVER_MEMORY_CPU = 1


class PreferredMemory:
    """Where the tensors of an answer should lie"""

    __slots__ = ("device_id", "memory_type")

    def __init__(self, preferred_memory_type: MemoryType, preferred_device_id: int = 0) -> None:
        if not isinstance(preferred_memory_type, MemoryType):
            raise TypeError(f"expected a MemoryType, got {type(preferred_memory_type).__name__}")
        self.memory_type = preferred_memory_type
        self.device_id = integer(preferred_device_id, "the device")


class InferenceTrace:
    """What a request is traced as"""

    __slots__ = ("_context",)

    def __init__(self, context: str | None = None) -> None:
        self._context = context

    def get_context(self) -> str | None:
        """The context of OpenTelemetry as JSON; nothing where the request is not traced"""
        return self._context


class InferenceRequest:
    """A request to another model"""

    __slots__ = (
        "_correlation_id",
        "_flags",
        "_inputs",
        "_model_name",
        "_model_version",
        "_parameters",
        "_preferred_memory",
        "_request_id",
        "_requested_output_names",
        "_server",
        "_timeout",
        "_trace",
    )

    def __init__(  # noqa: PLR0917 - the order of the API
        self,
        request_id: str = "",
        correlation_id: int | str = 0,
        inputs: Sequence[Tensor] = _REQUIRED,
        requested_output_names: Sequence[str] = _REQUIRED,
        model_name: str = _REQUIRED,
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: PreferredMemory | None = None,
        trace: InferenceTrace | None = None,
        parameters: dict[str, bool | int | str] | None = None,
    ) -> None:
        for field, value in (
            ("inputs", inputs),
            ("requested_output_names", requested_output_names),
            ("model_name", model_name),
        ):
            if value is _REQUIRED:
                raise TypeError(f"an InferenceRequest needs {field}")
        self._model_name = text(model_name, "model_name")
        self._request_id = text(request_id, "request_id")
        self._correlation_id = (
            text(correlation_id, "correlation_id")
            if isinstance(correlation_id, str)
            else unsigned(correlation_id, "correlation_id", 64)
        )
        self._inputs = items(inputs, "inputs")
        self._requested_output_names = [
            text(name, "a name of an output") for name in items(requested_output_names, "requested_output_names")
        ]
        version = integer(model_version, "model_version")
        self._model_version = -1 if version < 0 else unsigned(version, "model_version", 63)
        self._flags = unsigned(flags, "flags", 32)
        self._timeout = unsigned(timeout, "timeout", 64)
        if not isinstance(preferred_memory, (PreferredMemory, type(None))):
            raise TypeError(f"expected a PreferredMemory, got {type(preferred_memory).__name__}")
        if not isinstance(trace, (InferenceTrace, type(None))):
            raise TypeError(f"expected an InferenceTrace, got {type(trace).__name__}")
        of = f"for request with id '{self._request_id}' and model name '{self._model_name}' should not be empty."
        for tensor in self._inputs:
            if tensor is None:
                raise TritonModelException(f"Input tensor {of}")
            if not isinstance(tensor, Tensor):
                raise TypeError(f"expected a Tensor in inputs, got {type(tensor).__name__}")
        if "" in self._requested_output_names:
            raise TritonModelException(f"Requested output name {of}")
        self._preferred_memory = preferred_memory
        self._trace = trace
        self._parameters = as_json(parameters)
        # it may be handed to a thread that does not know whose it is
        self._server = server.found()

    def inputs(self) -> list[Tensor]:
        """Its tensors"""
        return self._inputs

    def request_id(self) -> str:
        """What the asker calls it; an empty string where it does not say"""
        return self._request_id

    def correlation_id(self) -> int | str:
        """The sequence it belongs to; 0 for none"""
        return self._correlation_id

    def requested_output_names(self) -> list[str]:
        """The tensors that are asked for"""
        return self._requested_output_names

    def model_name(self) -> str:
        """The model that is asked"""
        return self._model_name

    def model_version(self) -> int:
        """The version that is asked; -1 for any"""
        return self._model_version

    def flags(self) -> int:
        """Start and end of a sequence"""
        return self._flags

    def set_flags(self, flags: int) -> None:
        """Say that a sequence starts or ends"""
        self._flags = unsigned(flags, "flags", 32)

    def timeout(self) -> int:
        """Its time in microseconds; 0 for no limit"""
        return self._timeout

    def preferred_memory(self) -> PreferredMemory | None:
        """Where the tensors of the answer should lie"""
        return self._preferred_memory

    def parameters(self) -> str:
        """Its parameters as JSON"""
        return self._parameters

    def trace(self) -> InferenceTrace:
        """What it is traced as"""
        return InferenceTrace() if self._trace is None else self._trace

    def exec(self, decoupled: bool = False) -> InferenceResponse | ResponseIterator:  # noqa: FBT001, FBT002
        """Ask, and wait: for the one response, or with `decoupled` for an iterator over any number"""
        answers = self._asked().infer(self, decoupled)
        return ResponseIterator(answers) if decoupled else _the_one(answers)

    def async_exec(self, decoupled: bool = False) -> Any:  # noqa: FBT001, FBT002 - an awaitable of one or the other
        """Ask, and return an awaitable of what `exec` returns; the request has left when this returns"""
        loop = asyncio.get_running_loop()
        answers = self._asked().infer(self, decoupled)
        if decoupled:
            return _given(ResponseIterator(answers))
        answer = loop.run_in_executor(_threads_of(loop), _the_one, answers)
        # nobody waits any more: the thread is to be free, and the other model as well
        answer.add_done_callback(partial(_give_up, answers))
        return answer

    def _asked(self) -> server.Server:
        """By the model that is at work here, or else by the one that has made it"""
        return server.of_thread() or self._server or server.current()

    def get_response_sender(self) -> InferenceResponseSender:
        """Where the responses to it go"""
        raise TritonModelException("a request that a model has made itself has no response sender")

    def is_cancelled(self) -> bool:
        """Whether nobody waits for it any more"""
        raise TritonModelException("a request that a model has made itself cannot be asked whether it is cancelled")

    def set_release_flags(self, flags: int) -> None:  # noqa: ARG002 - the signature of requests that have some
        """What happens to it when `execute` returns"""
        raise TritonModelException("a request that a model has made itself has no release flags")


class IncomingRequest(InferenceRequest):
    """A request to this model, as `execute` gets it"""

    __slots__ = ("_decoupled", "_key", "_priority", "_release_flags", "_sender")

    def __init__(  # its fields were checked by the server
        self,
        key: Any,
        inputs: list[Tensor],
        *,
        decoupled: bool = False,
        request_id: str = "",
        correlation_id: int | str = 0,
        requested_output_names: list[str] | None = None,
        model_name: str = "",
        model_version: int = -1,
        flags: int = 0,
        priority: int = 0,
        timeout: int = 0,
        parameters: str = "",
        trace_context: str | None = None,
    ) -> None:
        self._server = server.found()
        self._key = key
        self._inputs = inputs
        self._decoupled = decoupled
        self._request_id = request_id
        self._correlation_id = correlation_id
        self._requested_output_names = [] if requested_output_names is None else requested_output_names
        self._model_name = model_name
        self._model_version = model_version
        self._flags = flags
        self._priority = priority
        self._timeout = timeout
        self._preferred_memory = None
        self._parameters = parameters or "{}"
        self._trace = None if trace_context is None else InferenceTrace(trace_context)
        self._release_flags = RELEASE_ALL
        # of a decoupled request at once: where it is dropped without a sender, nobody can end it either
        self._sender = InferenceResponseSender(key, decoupled, self._server) if decoupled else None

    def priority(self) -> int:
        """Its level, of which 1 is the highest; 0 for that of the model"""
        return self._priority

    def get_response_sender(self) -> InferenceResponseSender:
        """Where the responses to it go; always the same one"""
        if self._sender is None:
            self._sender = InferenceResponseSender(self._key, self._decoupled, self._server)
        return self._sender

    def is_cancelled(self) -> bool:
        """Whether nobody waits for it any more, though it has not ended"""
        if self._sender is not None and self._sender.has_ended:
            return False
        return (self._server or server.current()).is_cancelled(self._key)

    def set_release_flags(self, flags: int) -> None:
        """What happens to it when `execute` returns: it is over, or it is scheduled again"""
        if flags not in (RELEASE_ALL, RELEASE_RESCHEDULE):
            raise TritonModelException(f"expected a flag of TRITONSERVER_REQUEST_RELEASE, got {flags!r}")
        self._release_flags = flags

    @property
    def key(self) -> Any:
        """What the server knows it by"""
        return self._key

    @property
    def rescheduled(self) -> bool:
        """Whether it shall be executed again"""
        return self._release_flags == RELEASE_RESCHEDULE

    @property
    def sender(self) -> InferenceResponseSender | None:
        """The sender, if somebody has asked for it"""
        return self._sender


async def _given(value: ResponseIterator) -> ResponseIterator:
    return value


def _threads_of(loop: asyncio.AbstractEventLoop) -> ThreadPoolExecutor:
    threads = _waiting.get(loop)
    if threads is None:
        threads = _waiting[loop] = ThreadPoolExecutor(_MOST_WAITING, "kushi-answers")
    return threads


def _give_up(answers: Answers, answer: asyncio.Future[InferenceResponse]) -> None:
    if answer.cancelled():
        # the server may have gone
        with suppress(Exception):
            answers.cancel()


def _the_one(answers: Answers) -> InferenceResponse:
    """The response of a model that gives one"""
    response = next(iter(answers), None)
    if response is None:
        return InferenceResponse(error=TritonError("the model ended without a response"))
    return response
