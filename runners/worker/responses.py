"""What a model answers: responses, the sender that takes them, and the iterator over those of another model"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from . import server
from .errors import TritonError, TritonModelException
from .given import integer, items
from .parameters import as_json
from .tensors import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .server import Answers, Server

__all__ = ["RESPONSE_FINAL", "InferenceResponse", "InferenceResponseSender", "ResponseIterator"]

RESPONSE_FINAL = 1


class InferenceResponse:
    """Tensors, or an error; with parameters"""

    __slots__ = ("_error", "_output_tensors", "_parameters")

    def __init__(
        self,
        output_tensors: Sequence[Tensor] = (),
        error: TritonError | None = None,
        parameters: dict[str, bool | int | str] | None = None,
    ) -> None:
        self._output_tensors = items(output_tensors, "output_tensors")
        for tensor in self._output_tensors:
            if isinstance(tensor, Tensor):
                continue
            if tensor is None:
                raise TritonModelException("Output tensor for inference response should not be empty.")
            raise TypeError(f"expected a Tensor in output_tensors, got {type(tensor).__name__}")
        if error is not None and not isinstance(error, TritonError):
            raise TypeError(f"expected a TritonError as error, got {type(error).__name__}")
        self._error = error
        self._parameters = "" if parameters is None else as_json(parameters)

    def output_tensors(self) -> list[Tensor]:
        """The tensors that it was made with, as a list of the caller's own"""
        return [*self._output_tensors]

    def wanted(self, requested_output_names: Sequence[str]) -> list[Tensor]:
        """The tensors that were asked for, by name; all of them where none was named"""
        if not requested_output_names:
            return self._output_tensors
        return [tensor for tensor in self._output_tensors if tensor.name() in requested_output_names]

    def has_error(self) -> bool:
        """Whether it is an error, whatever tensors it has"""
        return self._error is not None

    def error(self) -> TritonError | None:
        """The error, if it is one"""
        return self._error

    def parameters(self) -> str:
        """Its parameters as JSON; an empty string where it has none"""
        return self._parameters


class InferenceResponseSender:
    """
    Takes the responses to one request, from any thread, also when `execute` has returned.

    A model in default mode sends one response, which is the end as well. A decoupled model sends any number and says
    which is the last. Where the last reference goes without that, the server is told, so no request waits for ever.
    """

    __slots__ = ("_closed", "_decoupled", "_ended", "_key", "_lock", "_server")

    # nothing more can be sent
    _closed: bool
    # the request has got its end, or gets it in another way
    _ended: bool

    def __init__(self, key: Any, decoupled: bool, asker: Server | None = None) -> None:  # noqa: FBT001
        self._server = asker or server.current()
        self._key = key
        self._decoupled = decoupled
        self._lock = threading.Lock()
        self._closed = False
        self._ended = False

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """Send a response, the end of them, or both"""
        if response is not None and not isinstance(response, InferenceResponse):
            raise TypeError(f"expected an InferenceResponse, got {type(response).__name__}")
        flags = integer(flags, "flags")
        ends = False
        try:
            with self._lock:
                self._check(response, flags)
                self._closed = ends = flags == RESPONSE_FINAL
                if not self._decoupled and response is not None:
                    flags = RESPONSE_FINAL
                elif not self._decoupled:
                    return
                self._ended = ends = flags == RESPONSE_FINAL
            self._server.send(self._key, response, flags)
        except BaseException:
            # the request still waits, for another try or for the error of its batch; another thread may have ended it
            if ends:
                with self._lock:
                    self._closed = self._ended = False
            raise

    def is_cancelled(self) -> bool:
        """Whether nobody waits for responses any more, though the request has not ended"""
        return not self.has_ended and self._server.is_cancelled(self._key)

    @property
    def has_ended(self) -> bool:
        """Whether it has sent the end of the request"""
        return self._ended

    def close(self) -> None:
        """No response will follow"""
        with self._lock:
            self._closed = True
            if self._ended or not self._decoupled:
                return
            self._ended = True
        self._server.send(self._key, None, RESPONSE_FINAL)

    def take_end(self) -> bool:
        """Whether the request still waits for its end, which the caller gives it then instead of this sender"""
        with self._lock:
            self._closed = True
            taken = not self._ended
            self._ended = True
        return taken

    def keep_open(self) -> None:
        """The request is executed again, so it does not matter when this sender goes"""
        self._ended = True

    def _check(self, response: InferenceResponse | None, flags: int) -> None:
        if self._closed:
            raise TritonModelException("Unable to send response. Response sender has been closed.")
        if flags not in (0, RESPONSE_FINAL):
            raise TritonModelException("Unable to send response. Unsupported flag provided.")
        if response is None and flags == 0:
            raise TritonModelException(
                "Inference Response object must be provided when the response flag is set to zero."
            )
        if self._decoupled:
            return
        if response is None and not self._ended:
            raise TritonModelException("Non-decoupled model cannot send complete final before sending a response")
        if response is not None and self._ended:
            raise TritonModelException("Non-decoupled model cannot send more than one response")

    def __del__(self) -> None:
        # not made to its end, where it has no such attribute
        if not getattr(self, "_ended", True):
            self._server.dropped(self._key)


class ResponseIterator:
    """The responses of another model to one request, as they come"""

    __slots__ = ("_responses",)

    def __init__(self, responses: Answers) -> None:
        self._responses = responses

    def __iter__(self) -> ResponseIterator:
        return self

    def __next__(self) -> InferenceResponse:
        return next(self._responses)

    def cancel(self) -> None:
        """Tell the other model that nobody waits; what it has sent so far can still be read"""
        self._responses.cancel()
