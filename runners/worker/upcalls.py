"""What a model asks of the server while it runs, as frames"""

from __future__ import annotations

import itertools
import json
import struct
import sys
import threading
from base64 import b64encode
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Callable

from . import kinds, server
from .call_messages import read_answer, write_call
from .channel import INLINE_BYTES, Closed
from .errors import TritonError, TritonModelException
from .messages import FINAL, response_parts, write_responses
from .responses import RESPONSE_FINAL, InferenceResponse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .channel import Channel, Frame
    from .execution import Key
    from .requests import InferenceRequest

__all__ = ["Upcalls"]

_LEVELS = ("error", "warning", "info", "verbose")
_TAKEN = struct.Struct("<II")
_CHANGE = struct.Struct("<d")
_RELEASE = 0
# who asks under this number does not wait for the answer
_NOBODY = 0
_CHANGES = {"increment": 1, "set": 2, "observe": 3}


class Upcalls:
    """The server, as the API sees it from a worker"""

    def __init__(self, channel: Channel, wait_until: Callable[[Callable[[], bool]], None]) -> None:
        self._channel = channel
        self.wait_until = wait_until
        self._numbers = itertools.count(1)
        self._answers: dict[int, tuple[bool, bytes]] = {}
        self._open: dict[tuple[int, int], Key] = {}
        # what has come for whoever waits
        self._calls: dict[int, list[Frame]] = {}
        self.positions: dict[str, int] = {}
        # of the model
        self.directory = ""
        self.instance = ""
        # what is to be done about requests, calls and metrics that nobody holds any more
        self._dropped: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._ender = threading.Thread(target=self._end_dropped, name="kushi-dropped", daemon=True)
        self._ender.start()

    def take(self, frame: Frame) -> None:
        """What came from the server; under the lock of whoever waits"""
        if frame.kind == kinds.ANSWER:
            if frame.id != _NOBODY:
                self._answers[frame.id] = (frame.value == 0, bytes(frame.payload))
        elif frame.kind == kinds.GRANT:
            key = self._open.get((frame.id, frame.value))
            if key is not None:
                taken, gone = _TAKEN.unpack(frame.payload)
                del key.untaken[:taken]
                key.gone = key.gone or bool(gone)
        elif frame.kind == kinds.CALL_RESPONSE:
            arrived = self._calls.get(frame.id)
            if arrived is not None:
                arrived.append(frame)
            if frame.value & FINAL:
                # behind the last one nothing is heard
                self._calls.pop(frame.id, None)

    def open(self, key: Key) -> None:
        """Responses to this request will be counted"""
        self._open[key.batch, key.position] = key

    def close(self, key: Key) -> None:
        """It has got its end. A thread that waits for room hears so, though the server has nothing more to say of it"""
        self._open.pop((key.batch, key.position), None)
        key.ended = True
        if key.waits:
            # its answer wakes whoever reads, and so all others
            place = {"verb": "is_cancelled", "batch": key.batch, "position": key.position}
            self._channel.send(kinds.ASK, [json.dumps(place).encode()], id=_NOBODY)

    def send(self, request_key: Key, response: InferenceResponse | None, flags: int) -> None:
        """As `server.Server` says, and so are the others"""
        key = request_key
        if key.ended:
            return
        final = flags & RESPONSE_FINAL
        # for the server an error is an end
        ends = bool(final) or (response is not None and response.has_error())
        parts = [] if response is None else response_parts(response, key.wanted, self.positions)
        answer = write_responses([(key.position, FINAL if final else 0, response, parts)])
        length = sum(map(len, answer))
        if not ends:
            self.wait_until(partial(key.has_room, length))
            if key.gone:
                raise TritonModelException("Unable to send response. Nobody waits for it any more.")
            if key.ended:
                raise TritonModelException("Unable to send response. Response sender has been closed.")
        has_left = False
        try:
            key.ended = ends
            self._channel.send(kinds.RESPONSES, answer, count=1, id=key.batch)
            has_left = True
        except BaseException:
            if not has_left:
                # the request still waits
                key.ended = False
                if not ends:
                    with suppress(ValueError):
                        key.untaken.remove(length)
            raise
        if ends:
            self.close(key)

    def end(self) -> None:
        """Nothing more can be sent, nor waited for"""
        self._dropped.put(_closed)
        # that of the worker, which refers to this
        self.wait_until = _never

    def _end_dropped(self) -> None:
        """A destructor must not wait, so a thread does"""
        while True:
            end = self._dropped.get()
            try:
                end()
            except Closed:
                return

    def _let_go(self) -> None:
        """Returns when the server has been told of all that nobody holds by now"""
        told = threading.Event()
        self._dropped.put(told.set)
        # it ends with the server, and is not there in a process that was forked
        while not told.wait(0.1) and self._ender.is_alive():
            pass

    def _end(self, key: Key) -> None:
        response = None
        if not key.decoupled:
            text = "the model dropped its response sender without a response"
            response = InferenceResponse(error=TritonError(text))
        self.send(key, response, RESPONSE_FINAL)

    def is_cancelled(self, request_key: Key) -> bool:
        place = {"batch": request_key.batch, "position": request_key.position}
        return bool(self._ask("is_cancelled", place))

    def log(self, level: str, text: str) -> None:
        line = text.encode("utf-8", "replace")[:INLINE_BYTES]
        try:
            self._channel.send(kinds.LOG, [line], count=_LEVELS.index(level))
        except Closed:
            # of a process that the model has forked, whose output the server reads as well
            sys.stderr.write(f"{text}\n")

    def dropped(self, request_key: Key) -> None:
        self._dropped.put(partial(self._end, request_key))

    def call_dropped(self, number: int) -> None:
        """Nobody waits for its answers any more; called by destructors"""
        self._calls.pop(number, None)
        self._dropped.put(partial(self.cancel, number))

    def load_model(self, name: str, config: str, files: Mapping[str, bytes]) -> None:
        parameters = {path: b64encode(content).decode() for path, content in files.items()}
        if config:
            parameters["config"] = config
        self._perform("RepositoryModelLoad", {"model_name": name, "parameters": parameters})

    def model_dir(self) -> str:
        return self.directory

    def instance_name(self) -> str:
        return self.instance

    def unload_model(self, name: str, unload_dependents: bool) -> None:  # noqa: FBT001
        parameters = {"unload_dependents": unload_dependents}
        self._perform("RepositoryModelUnload", {"model_name": name, "parameters": parameters})

    def is_model_ready(self, name: str, version: str) -> bool:
        try:
            return self._perform("ModelReady", {"name": name, "version": version}) is True
        except TritonModelException:
            return False

    def metric_family(self, name: str, description: str, kind: str) -> Any:
        # one of this name, of another kind, may have just gone
        self._let_go()
        return self._ask("metric_family", {"name": name, "description": description, "kind": kind})

    def metric(self, family: Any, labels: Mapping[str, str], buckets: Sequence[float] | None) -> Any:
        self._let_go()
        return self._ask("metric", {"family": family, "labels": dict(labels), "buckets": buckets})

    def metric_change(self, metric: Any, verb: str, value: float) -> None:
        self._channel.send(kinds.METRIC, [_CHANGE.pack(value)], count=_CHANGES[verb], id=metric)

    def metric_value(self, metric: Any) -> float:
        return float(self._ask("metric_value", {"metric": metric}))

    def metric_drop(self, handle: Any) -> None:
        self._dropped.put(partial(self._release, handle))

    def _release(self, metric: int) -> None:
        self._channel.send(kinds.METRIC, [_CHANGE.pack(0)], count=_RELEASE, id=metric)

    def infer(self, request: InferenceRequest, decoupled: bool) -> _Answers:  # noqa: FBT001
        number = next(self._numbers)
        arrived: list[Frame] = []
        self._calls[number] = arrived
        answers = _Answers(self, number, arrived)
        self._channel.send(kinds.CALL, write_call(request, self._parent(), decoupled=decoupled), id=number)
        return answers

    def _perform(self, name: str, arguments: Mapping[str, Any]) -> Any:
        return self._ask("perform", {"name": name, "arguments": arguments})

    def _ask(self, verb: str, arguments: Mapping[str, Any]) -> Any:
        number = next(self._numbers)
        payload = json.dumps({"verb": verb, **arguments}).encode()
        self._channel.send(kinds.ASK, [payload], id=number)
        self.wait_until(lambda: number in self._answers)
        succeeded, answer = self._answers.pop(number)
        if not succeeded:
            raise TritonModelException(answer.decode("utf-8", "replace"))
        return json.loads(answer) if answer else None

    def _parent(self) -> int | None:
        """The batch on whose behalf this thread or coroutine asks, as far as that is known"""
        executing = server.executing.get()
        return executing[0].batch if executing else None

    def cancel(self, number: int) -> None:
        self._channel.send(kinds.CALL_CANCEL, [], id=number)

    def is_open(self, number: int) -> bool:
        """Whether its last answer has not come yet"""
        return number in self._calls

    def taken(self, number: int) -> None:
        """There is room for another answer"""
        self._channel.send(kinds.CALL_TAKEN, [], id=number)


def _closed() -> None:
    raise Closed


def _never(_: Callable[[], bool]) -> None:
    raise Closed


class _Answers:
    """The responses of another model to one request"""

    def __init__(self, upcalls: Upcalls, number: int, arrived: list[Frame]) -> None:
        self._upcalls = upcalls
        self._number = number
        self._arrived = arrived

    def __iter__(self) -> Iterator[InferenceResponse]:
        return self

    def __next__(self) -> InferenceResponse:
        # in this order: the last one arrives before its call is closed
        while self._upcalls.is_open(self._number) or self._arrived:
            self._upcalls.wait_until(self._has_news)
            try:
                frame = self._arrived.pop(0)
            except IndexError:
                # another thread has it, or it has been the last
                continue
            if not frame.value & FINAL:
                self._upcalls.taken(self._number)
            if len(frame.payload) > 0:
                return read_answer(frame.payload)
        raise StopIteration

    def _has_news(self) -> bool:
        return bool(self._arrived) or not self._upcalls.is_open(self._number)

    def __del__(self) -> None:
        if self._upcalls.is_open(self._number):
            self._upcalls.call_dropped(self._number)

    def cancel(self) -> None:
        """Nobody waits any more"""
        if self._upcalls.is_open(self._number):
            self._upcalls.cancel(self._number)
