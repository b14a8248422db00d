"""Batches: from the frame that brings one to the frames that answer it"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from . import kinds
from .errors import TritonModelException
from .messages import FINAL, read_batch, response_parts, write_responses
from .requests import RELEASE_RESCHEDULE, IncomingRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .calls import Model, Outcomes
    from .channel import Channel, Frame
    from .messages import TensorInfo
    from .upcalls import Upcalls

__all__ = ["Execution", "Key"]

# responses of a request that have left and have not been taken
WINDOW = 32


class Key:
    """What a request is known by: its batch, its place in it, and which outputs it wants"""

    __slots__ = ("batch", "decoupled", "ended", "gone", "position", "untaken", "wanted")

    def __init__(self, batch: int, position: int, wanted: Sequence[str], *, decoupled: bool) -> None:
        self.batch = batch
        self.position = position
        self.wanted = wanted
        self.decoupled = decoupled
        # responses that nobody has taken yet, and whether anybody waits for them
        self.untaken = 0
        self.gone = False
        self.ended = False

    def has_room(self) -> bool:
        """Whether a response may leave, which then has its place, or none is of use; under the lock of whoever waits"""
        if self.gone:
            return True
        if self.untaken >= WINDOW:
            return False
        self.untaken += 1
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
        self._decoupled = decoupled
        self._positions = {output.name: position for position, output in enumerate(outputs)}
        upcalls.positions = self._positions

    def execute(self, frame: Frame) -> None:
        """Answers a batch, now or later, and says when the model can take the next one"""
        batch = frame.id
        requests = self._requests(frame)
        keys = [request.key for request in requests]
        lock = threading.Lock()
        has_returned = False
        early: list[Any] = []

        def done(outcomes: Outcomes) -> None:
            answers = self._answers(keys, outcomes)
            with lock:
                if not has_returned:
                    early.extend(answers)
                    return
            if answers:
                self._channel.send(kinds.RESPONSES, write_responses(answers), count=len(answers), id=batch)

        self._model.execute(requests, done)
        # slots that only these hold are released with the answer
        del requests
        with lock:
            has_returned = True
        self._channel.send(kinds.RETURNED, write_responses(early), count=len(early), id=batch)

    def _requests(self, frame: Frame) -> list[IncomingRequest]:
        requests: list[IncomingRequest] = []
        for position, incoming in enumerate(read_batch(frame.payload, frame.value, self._inputs, self._outputs)):
            key = Key(frame.id, position, incoming.wanted, decoupled=self._decoupled)
            if self._decoupled:
                self._upcalls.open(key)
            requests.append(
                _Request(
                    key,
                    incoming.inputs,
                    decoupled=self._decoupled,
                    request_id=incoming.request_id,
                    correlation_id=incoming.correlation_id,
                    requested_output_names=incoming.wanted,
                    model_name=self._name,
                    model_version=self._version,
                    flags=incoming.flags,
                    priority=incoming.priority,
                    timeout=incoming.timeout,
                    parameters=incoming.parameters,
                )
            )
        return requests

    def _answers(self, keys: Sequence[Key], outcomes: Outcomes) -> list[Any]:
        answers = []
        for key, response in zip(keys, outcomes):
            if response is not None:
                parts = response_parts(response, key.wanted, self._positions)
                answers.append((key.position, FINAL, response, parts))
                self._upcalls.close(key)
        return answers
