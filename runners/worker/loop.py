"""
The life of a worker: it makes the model, executes its batches, and ends when the server says so or has gone.

Whoever waits for something of the server reads the socket, one thread at a time; the others wait until that one has
read what they wait for. So a batch costs no thread a hand-off, and a model may ask the server from any thread.
"""

from __future__ import annotations

import json
import os
import threading
import weakref
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from . import calls, failures, kinds, server
from .channel import Channel, Closed, Frame
from .errors import TritonModelException
from .execution import Execution
from .kept_sources import keep
from .messages import TensorInfo
from .model_file import model_class
from .upcalls import Upcalls

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Worker"]

_WORK = frozenset({kinds.INITIALIZE, kinds.AUTO_COMPLETE, kinds.EXECUTE, kinds.FINALIZE, kinds.IS_READY})


# for coroutines of a model whose life ends without its `finalize`
_END_SECONDS = 0.5


class Worker:
    """The loop; what models ask of the server goes through `Upcalls`"""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        # the handler of a signal, or a destructor, may run under it
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._is_read = False
        # the thread that reads
        self._reader = 0
        # threads that wait until somebody else has read
        self._others = 0
        self._work: deque[Frame] = deque()
        channel.until = self._wait_for_room
        self._upcalls = Upcalls(channel, self.wait_until)
        self._model: calls.Model | None = None
        self._execution: Execution | None = None
        # a worker in the process of the server goes before that does
        os.register_at_fork(after_in_child=partial(_leave, weakref.ref(self)))

    def run(self) -> bool:
        """Until the server ends it; False: it has gone before"""
        server.set_current(self._upcalls)
        try:
            while self._do(self._next_work()):
                pass
        except Closed:
            return False
        return True

    def close(self) -> None:
        """What still waits for the server hears that it has gone"""
        self._channel.close()
        self._upcalls.end()
        server.forget(self._upcalls)
        if self._model is not None:
            self._model.end(_END_SECONDS)
        # nothing refers to itself by these any more, so that the model's memory goes without a collection
        self._model = self._execution = self._channel.until = None

    def leave(self) -> None:
        """In a process that the model has forked"""
        self._channel.leave()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._is_read = False
        self._reader = 0
        self._others = 0

    def wait_until(self, done: Callable[[], bool]) -> None:
        """Returns once something that the server sends has made it so; raises Closed"""
        if self._cannot_wait():
            raise TritonModelException(
                "the server is waited for already: neither the handler of a signal nor a destructor can do so meanwhile"
            )
        lock = self._lock
        while True:
            frame = None
            # the handler of a signal may raise anywhere: what is set here is set back below
            reads = False
            try:
                with lock:
                    while self._is_read:
                        if done():
                            return
                        self._wait_for_others()
                    if done():
                        return
                    reads = self._is_read = True
                    self._reader = threading.get_ident()
                frame = self._channel.read()
            finally:
                if reads:
                    with lock:
                        self._is_read = False
                        self._reader = 0
                        if frame is not None:
                            self._take(frame)
                        if self._others:
                            self._changed.notify_all()

    def _wait_for_others(self) -> None:
        """Until somebody else has read; under the lock"""
        self._others += 1
        try:
            self._changed.wait()
        finally:
            self._others -= 1

    def _cannot_wait(self) -> bool:
        """Whether this is code that runs in the midst of a frame of this very thread"""
        return self._reader == threading.get_ident() or self._channel.is_sending()

    def _wait_for_room(self, done: Callable[[], bool]) -> None:
        """In the midst of a frame there is some, too, if less"""
        if not self._cannot_wait():
            self.wait_until(done)

    def _take(self, frame: Frame) -> None:
        """Under the lock"""
        if frame.kind in _WORK:
            self._work.append(frame)
        else:
            self._upcalls.take(frame)

    def _next_work(self) -> Frame:
        self.wait_until(self._has_work)
        return self._work.popleft()

    def _has_work(self) -> bool:
        return bool(self._work)

    def _do(self, frame: Frame) -> bool:
        if frame.kind == kinds.EXECUTE and self._execution is not None:
            self._execution.execute(frame)
        elif frame.kind == kinds.IS_READY and self._model is not None:
            self._channel.send(kinds.READINESS, [], count=int(self._model.is_ready()))
        elif frame.kind == kinds.FINALIZE:
            self._finalize()
            return False
        else:
            order = json.loads(bytes(frame.payload))
            answer = self._complete if frame.kind == kinds.AUTO_COMPLETE else self._initialize
            try:
                text = answer(order)
            except BaseException as error:  # noqa: BLE001 - it is the user's, and may raise anything
                self._upcalls.log("error", failures.logged(error))
                self._channel.send(kinds.FAILED, [failures.described(error).encode("utf-8", "replace")])
            else:
                has_opinion = self._model is not None and self._model.has_opinion
                self._channel.send(kinds.READY, [text.encode()], count=int(has_opinion))
        return True

    def _complete(self, order: dict[str, Any]) -> str:
        self._upcalls.directory = order["version_directory"]
        keep(order["sources"])
        return calls.auto_complete(model_class(order["path"], order["directories"], self._upcalls), order["config"])

    def _initialize(self, order: dict[str, Any]) -> str:
        args = order["args"]
        self._upcalls.directory = order["version_directory"]
        self._upcalls.instance = order["instance"]
        keep(order["sources"])
        found = model_class(order["path"], order["directories"], self._upcalls)
        model = calls.Model(found, order["instance"], decoupled=order["decoupled"])
        model.initialize(args)
        self._model = model
        self._execution = Execution(
            self._channel,
            self._upcalls,
            model,
            name=args["model_name"],
            version=int(args["model_version"]),
            inputs=[TensorInfo(*tensor) for tensor in order["inputs"]],
            outputs=[TensorInfo(*tensor) for tensor in order["outputs"]],
            decoupled=order["decoupled"],
        )
        return ""

    def _finalize(self) -> None:
        if self._model is not None:
            try:
                self._model.finalize()
            except BaseException as error:  # noqa: BLE001 - it is the user's, and may raise anything
                self._upcalls.log("error", failures.logged(error))
        self._channel.send(kinds.FINALIZED, [])


def _leave(reference: weakref.ref[Worker]) -> None:
    worker = reference()
    if worker is not None:
        worker.leave()
