"""Batches: from the frame that brings one to the frames that answer it"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from . import failures, kinds
from .channel import Closed
from .errors import TritonError, TritonModelException
from .messages import FINAL, read_batch, response_parts, write_responses
from .requests import RELEASE_RESCHEDULE, IncomingRequest
from .responses import InferenceResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .calls import Model, Outcomes
    from .channel import Channel, Frame
    from .messages import Answer, TensorInfo
    from .upcalls import Upcalls

__all__ = ["Execution", "Key"]

# responses of a request that have left and have not been taken: so many, and no further one behind so many bytes
WINDOW = 32
WINDOW_BYTES = 4 << 20


class Key:
    """What a request is known by: its batch, its place in it, and which outputs it wants"""

    __slots__ = ("batch", "decoupled", "ended", "gone", "position", "untaken", "waits", "wanted")

    def __init__(self, batch: int, position: int, wanted: Sequence[str] | None, *, decoupled: bool) -> None:
        self.batch = batch
        self.position = position
        self.wanted = wanted
        self.decoupled = decoupled
        # the lengths of responses that nobody has taken yet, and whether anybody waits for them
        self.untaken: list[int] = []
        self.gone = False
        self.ended = False
        # whether a thread has found no room, and may wait for it
        self.waits = False

    def has_room(self, length: int) -> bool:
        """Whether a response may leave, which then has its place, or none is of use; under the lock of whoever waits"""
        if len(self.untaken) >= WINDOW or sum(self.untaken) >= WINDOW_BYTES:
            # before it looks whether the request has ended: who ends it does the same in the other order
            self.waits = True
            return self.gone or self.ended
        if not (self.gone or self.ended):
            self.untaken.append(length)
        return True


class _Request(IncomingRequest):
    """A request whose model cannot ask to be executed again: no scheduler does that yet"""

    __slots__ = ()

    def set_release_flags(self, flags: int) -> None:
        if flags == RELEASE_RESCHEDULE:
            raise TritonModelException("this version does not execute a request again")
        super().set_release_flags(flags)


class Execution:
    """Executes the batches of one model"""

    def __init__(
        self,
        channel: Channel,
        upcalls: Upcalls,
        model: Model,
        *,
        name: str,
        version: int,
        inputs: Sequence[TensorInfo],
        outputs: Sequence[TensorInfo],
        decoupled: bool,
    ) -> None:
        self._channel = channel
        self._upcalls = upcalls
        self._model = model
        self._name = name
        self._version = version
        self._inputs = inputs
        self._outputs = outputs
        self._names = [output.name for output in outputs]
        self._decoupled = decoupled
        self._positions = {output.name: position for position, output in enumerate(outputs)}
        upcalls.positions = self._positions

    def execute(self, frame: Frame) -> None:
        """Answers a batch, now or later, and says when the model can take the next one"""
        batch = frame.id
        requests = self._requests(frame)
        keys = [request.key for request in requests]
        arrived: list[Outcomes] = []
        # the coroutine of a decoupled model may go on
        done = partial(self._answer, kinds.RESPONSES, batch, keys) if self._decoupled else arrived.append
        self._model.execute(requests, done)
        # slots that only these hold are released with the answer
        del requests
        self._answer(kinds.RETURNED, batch, keys, arrived[0] if arrived else ())

    def _answer(self, kind: int, batch: int, keys: Sequence[Key], outcomes: Outcomes | tuple[()]) -> None:
        answers: list[Answer] = []
        for key, response in zip(keys, outcomes):
            if response is not None:
                answers.append(self._final(key, response))
                if self._decoupled:
                    self._upcalls.close(key)
        if answers or kind == kinds.RETURNED:
            self._send(kind, batch, answers)

    def _final(self, key: Key, response: InferenceResponse) -> Answer:
        try:
            return key.position, FINAL, response, response_parts(response, key.wanted, self._positions)
        except Exception as error:  # noqa: BLE001 - of the model's objects
            return key.position, FINAL, _unwritten(error), []

    def _send(self, kind: int, batch: int, answers: list[Answer]) -> None:
        try:
            self._channel.send(kind, write_responses(answers), count=len(answers), id=batch)
        except Closed:
            raise
        except Exception as error:  # noqa: BLE001 - of memory or descriptors that are not there, and of the model's objects
            error_of = _unwritten(error)
            failed: list[Answer] = [(position, flags, error_of, []) for position, flags, _, _ in answers]
            self._channel.send(kind, write_responses(failed), count=len(failed), id=batch)

    def _requests(self, frame: Frame) -> list[IncomingRequest]:
        requests: list[IncomingRequest] = []
        decoupled = self._decoupled
        for incoming in read_batch(frame.payload, frame.value, self._inputs, self._outputs):
            key = Key(frame.id, len(requests), incoming.wanted, decoupled=decoupled)
            if decoupled:
                self._upcalls.open(key)
            requests.append(
                _Request(
                    key,
                    incoming.inputs,
                    decoupled=decoupled,
                    request_id=incoming.request_id,
                    correlation_id=incoming.correlation_id,
                    requested_output_names=list(self._names if incoming.wanted is None else incoming.wanted),
                    model_name=self._name,
                    model_version=self._version,
                    flags=incoming.flags,
                    priority=incoming.priority,
                    timeout=incoming.timeout,
                    parameters=incoming.parameters,
                    trace_context=incoming.trace_context,
                )
            )
        return requests


def _unwritten(error: Exception) -> InferenceResponse:
    return InferenceResponse(error=TritonError(f"the answer cannot be written: {failures.described(error)}"))
