"""
The calls of a model's class: what it gives is checked, and what it raises becomes errors of requests.

No transport is known here. `initialize` and `finalize` raise what the model raises. `execute` answers each request
once, whatever the model does.
"""

from __future__ import annotations

import inspect
import sys
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Callable, Optional

from . import failures, server
from .background import Background
from .errors import TritonError, TritonModelException
from .model_config import ModelConfig
from .responses import InferenceResponse

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from .requests import IncomingRequest

__all__ = ["Model", "Outcomes", "auto_complete"]

# one for each request of a batch: a response that ends it; or none, where its sender answers or has answered, and where
# it is executed again
Outcomes = list[Optional[InferenceResponse]]


def auto_complete(model_class: Any, model_config: str) -> str:
    """The configuration as the class completes it, as JSON"""
    complete = getattr(model_class, "auto_complete_config", None)
    if complete is None:
        return model_config
    config = ModelConfig(model_config)
    completed = complete(config)
    if not isinstance(completed, ModelConfig):
        raise TritonModelException(
            f"auto_complete_config function in model '{config.as_dict()['name']}' must return a valid pb.ModelConfig "
            "object."
        )
    return completed.as_json()


class Model:
    """One instance of a model's class. Its methods are called one at a time, by one thread"""

    def __init__(self, model_class: Any, instance_name: str, *, decoupled: bool) -> None:
        self._model = model_class()
        self._name = instance_name
        self._decoupled = decoupled
        self._background = Background()
        self._says_ready = getattr(self._model, "is_ready", None) or getattr(self._model, "is_model_ready", None)

    @property
    def has_opinion(self) -> bool:
        """Whether it says itself if it is ready"""
        return self._says_ready is not None

    def initialize(self, args: dict[str, str]) -> None:
        """Let the model make what it needs"""
        if hasattr(self._model, "initialize"):
            self._model.initialize(args)

    def finalize(self) -> None:
        """Let the model give back what it holds; coroutines that still run then are cancelled"""
        try:
            if hasattr(self._model, "finalize"):
                self._model.finalize()
        finally:
            self.end()

    def end(self, patience: float | None = None) -> None:
        """Nothing of it runs any more, or is waited for; once more does no harm"""
        self._background.end(patience)

    def is_ready(self) -> bool:
        """What the model says of itself; one that cannot say it is not ready, and one that has no such method is"""
        try:
            said = True if self._says_ready is None else self._says_ready()
            if inspect.iscoroutine(said):
                said = self._background.begin(said).result()
        except SystemExit:
            raise
        except BaseException as error:  # noqa: BLE001 - it is the user's, and may raise anything
            server.current().log("error", failures.logged(error))
            return False
        return said is True

    def execute(self, requests: Sequence[IncomingRequest], done: Callable[[Outcomes], None]) -> None:
        """
        Execute a batch. When this returns, the model can take the next one.

        `done` gets the outcomes once: before this returns, or where the coroutine of a decoupled model goes on, when
        that ends. It is called on this thread or on that of the coroutines.
        """
        token = server.executing.set(tuple([request.key for request in requests]))
        try:
            self._execute(requests, done)
        finally:
            server.executing.reset(token)

    def _execute(self, requests: Sequence[IncomingRequest], done: Callable[[Outcomes], None]) -> None:
        execute = getattr(self._model, "execute", None)
        if execute is None:
            file = getattr(sys.modules.get(type(self._model).__module__), "__file__", None)
            text = f"Python model {file or self._name} does not implement `execute` method."
            done(self._refused(requests, text))
            return
        try:
            # a list of its own, which it may change
            returned = execute(list(requests))
        except SystemExit:
            # it is asked for, and the process ends as it says
            raise
        except BaseException as error:  # noqa: BLE001 - it is the user's, and may raise anything
            done(self._failed(requests, error))
            return
        if not _is_a(returned, CoroutineType):
            done(self._outcomes(requests, returned))
            return
        # it takes the context of this thread with it
        running = self._background.begin(self._awaited(requests, returned, done))
        if not self._decoupled:
            running.result()

    async def _awaited(
        self, requests: Sequence[IncomingRequest], execution: Coroutine[Any, Any, Any], done: Callable[[Outcomes], None]
    ) -> None:
        try:
            returned = await execution
        # some would end the event loop, and everything that runs on it
        except BaseException as error:  # noqa: BLE001
            outcomes = self._failed(requests, error)
        else:
            outcomes = self._outcomes(requests, returned)
        done(outcomes)

    def _outcomes(self, requests: Sequence[IncomingRequest], returned: Any) -> Outcomes:
        """What `execute` has returned, checked"""
        absent = "Expected an 'InferenceResponse' object in the execute function return list"
        if returned is None:
            absent = "Expected a list in the execute return"
            returned = [None] * len(requests)
        elif self._decoupled:
            text = f"Python model '{self._name}' is using the decoupled mode and the execute function must return None."
            return self._refused(requests, text)
        elif not _is_a(returned, list):
            text = f"Expected a list in the execute return, found type '{failures.type_of(returned)}'."
            return self._refused(requests, text)
        # without the methods of a class of the model's own
        elif len(returned := list.copy(returned)) != len(requests):
            return self._refused(
                requests,
                "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
                f"InferenceRequest(s) size is:{len(requests)}, and InferenceResponse(s) size is:{len(returned)}\n",
            )
        return [self._outcome(request, response, absent) for request, response in zip(requests, returned)]

    def _outcome(self, request: IncomingRequest, response: Any, absent: str) -> InferenceResponse | None:
        """What `execute` has returned for one request, checked"""
        given: InferenceResponse | None = response if _is_a(response, InferenceResponse) else None
        if request.sender is None and not request.rescheduled and given is not None:
            return given
        if response is None and request.rescheduled:
            if request.sender is not None:
                request.sender.keep_open()
            return None
        if response is None and request.sender is not None:
            return None
        if request.rescheduled:
            text = "Expected a None object in the execute function return list for rescheduled request"
        elif given is not None:
            if _takes_end(request):
                return given
            server.current().log(
                "error", f"{self._name}: execute returned a response to a request that has one already"
            )
            return None
        else:
            text = absent
        return self._refused([request], f"{text}, found type '{failures.type_of(response)}'.")[0]

    def _refused(self, requests: Sequence[IncomingRequest], text: str) -> Outcomes:
        return self._errors(requests, text, text)

    def _failed(self, requests: Sequence[IncomingRequest], error: BaseException) -> Outcomes:
        return self._errors(requests, failures.described(error), failures.logged(error))

    def _errors(self, requests: Sequence[IncomingRequest], text: str, whole: str) -> Outcomes:
        """An error for each request that has not got its end"""
        begin = f"Failed to process the request(s) for model '{self._name}', message: "
        server.current().log("error", begin + whole)
        error = TritonError(begin + text)
        return [InferenceResponse(error=error) if _takes_end(request) else None for request in requests]


def _is_a(value: Any, kind: type[Any]) -> bool:
    """As `isinstance`, without what the model says of its class"""
    return issubclass(type(value), kind)


def _takes_end(request: IncomingRequest) -> bool:
    return request.sender is None or request.sender.take_end()
