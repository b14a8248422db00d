"""What the API asks of the server, as one object: the loop of a worker sets it, and so does a model in process"""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from .errors import TritonModelException

if TYPE_CHECKING:
    import weakref
    from collections.abc import Iterator, Mapping, Sequence

    from .requests import InferenceRequest
    from .responses import InferenceResponse

__all__ = ["OWNER", "Answers", "Server", "current", "executing", "forget", "found", "log", "of_thread", "set_current"]


class Answers(Protocol):
    """The responses of another model; `next` waits for one"""

    def __iter__(self) -> Iterator[InferenceResponse]: ...

    def __next__(self) -> InferenceResponse: ...

    def cancel(self) -> None:
        """Nobody waits any more; without effect once the last response is here"""
        ...


class Server(Protocol):
    """Called from any thread. What is refused raises TritonModelException"""

    def infer(self, request: InferenceRequest, decoupled: bool) -> Answers:  # noqa: FBT001
        """
        Ask another model; the request has left when this returns, and the answers are waited for one by one.

        It is a child of the requests in `executing`, which it inherits its deadline and its trace from.
        A failure is a response with an error, also that of a decoupled model that was not asked as one.
        """
        ...

    def send(self, request_key: Any, response: InferenceResponse | None, flags: int) -> None:
        """An answer to a request, its end, or both; waits for a slow reader and raises where it has gone"""
        ...

    def dropped(self, request_key: Any) -> None:
        """
        The model holds nothing any more by which it could end the request, and has not ended it.

        A decoupled request ends here, and one that has no response gets an error. Called by destructors, so anywhere:
        it takes no lock and never waits (`queue.SimpleQueue.put` is made for that).
        """
        ...

    def is_cancelled(self, request_key: Any) -> bool:
        """Whether nobody waits for the request any more"""
        ...

    def model_dir(self) -> str:
        """The directory of the version that runs here"""
        ...

    def instance_name(self) -> str:
        """That of the instance that runs here; a model that completes its configuration has none"""
        ...

    def log(self, level: str, text: str) -> None:
        """A line for the log, at the level "error", "warning", "info" or "verbose"."""
        ...

    def load_model(self, name: str, config: str, files: Mapping[str, bytes]) -> None:
        """Load a model, with another configuration and other files where they are given"""
        ...

    def unload_model(self, name: str, unload_dependents: bool) -> None:  # noqa: FBT001
        """Unload a model, and the models of an ensemble with it"""
        ...

    def is_model_ready(self, name: str, version: str) -> bool:
        """Whether a version serves; any one, where the version is empty"""
        ...

    def metric_family(self, name: str, description: str, kind: str) -> Any:
        """A "counter", "gauge" or "histogram" for the metrics port, or the family that has the name already"""
        ...

    def metric(self, family: Any, labels: Mapping[str, str], buckets: Sequence[float] | None) -> Any:
        """One metric of a family, or the one with those labels"""
        ...

    def metric_change(self, metric: Any, verb: str, value: float) -> None:
        """Change it; the verb is "increment", "set" or "observe"."""
        ...

    def metric_value(self, metric: Any) -> float:
        """What it stands at"""
        ...

    def metric_drop(self, handle: Any) -> None:
        """
        The model does not hold a family or a metric any more.

        It comes once for each answer of `metric_family` and `metric`; called by destructors, as `dropped` is.
        """
        ...


# the keys of the requests that the model executes here; a thread that it starts itself executes none
executing: ContextVar[tuple[Any, ...]] = ContextVar("executing", default=())

# several where models run in the process of the server: each on a thread of its own
_of_thread: ContextVar[Server | None] = ContextVar("server", default=None)
_all: list[Server] = []
# in the globals of a model's file, whose functions may run on threads that know nothing of it: a weak reference
OWNER = "__kushi_server__"


def set_current(server: Server | None) -> None:
    """Who answers the API on this thread from now on, and on the threads that models start"""
    _of_thread.set(server)
    if server is None:
        _all.clear()
    elif server not in _all:
        _all.append(server)


def forget(server: Server) -> None:
    """It answers nobody any more"""
    if server in _all:
        _all.remove(server)


def current() -> Server:
    """Who answers the API"""
    server = found()
    if server is not None:
        return server
    if _all:
        raise TritonModelException(
            "the model that asks has gone, or several run in this process and this thread does not say which one asks: "
            "call the API from a function of its own file, or start the thread with the context of the model "
            "(contextvars.copy_context)"
        )
    raise TritonModelException("there is no server here: the API of Python models works where a server runs one")


def log(level: str, text: str) -> None:
    """A line for its log; in a process that a model has started it is printed, which the server reads as well"""
    server = found()
    if server is None:
        sys.stderr.write(f"{text}\n")
    else:
        server.log(level, text)


def found() -> Server | None:
    """Who answers the API, if that is known here"""
    server = _of_thread.get()
    if server is not None:
        return server
    owner = _owner()
    if owner is not None:
        return owner()
    # others may come and go meanwhile
    known = [*_all]
    return known[0] if len(known) == 1 else None


def of_thread() -> Server | None:
    """Who answers the API on this thread, if it is one of a model's own"""
    return _of_thread.get()


def _owner() -> weakref.ref[Server] | None:
    """That of the model whose file is at work on this thread; it may have gone"""
    frame = sys._getframe(1)  # noqa: SLF001 - the way to it, for the debugger and for this
    while frame is not None:
        owner: weakref.ref[Server] | None = frame.f_globals.get(OWNER)
        if owner is not None:
            return owner
        frame = frame.f_back  # type: ignore[assignment]
    return None
