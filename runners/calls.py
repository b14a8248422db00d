"""
The verbs that an Engine and a Client share: inference, and the handles of models.

One native call each: what happens to a request afterwards happens in Rust, the same for both. An awaited call belongs
to the event loop that was running when it was made.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, NoReturn, Self, SupportsIndex

from .async_stream import AsyncStream
from .management import Management
from .model import Model
from .verbs import version_text

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Mapping, Sequence
    from datetime import timedelta
    from types import TracebackType

    from kushi_native import Core, LocalClient, RemoteClient, Result, Stream
    from numpy.typing import ArrayLike, DTypeLike, NDArray

__all__ = ["Calls"]

_HANDLES = 1024


class Calls(Management):
    """Inference on the models of an engine, in this process or elsewhere"""

    def __init__(self, native: Core | LocalClient | RemoteClient) -> None:
        self._native = native
        self._handles: dict[tuple[str, str], Model] = {}

    def infer(
        self,
        model: str,
        /,
        *inputs: ArrayLike | Mapping[str, ArrayLike],
        model_version: str | SupportsIndex = "",
        outputs: Sequence[str] | Mapping[str, SupportsIndex] | None = None,
        parameters: Mapping[str, bool | int | float | str] | None = None,
        deadline: float | timedelta | None = None,
        priority: int = 0,
        request_id: str = "",
    ) -> Result:
        """
        Asks `model` and waits for its answer, without holding the interpreter lock.

        inputs: arrays in the order of the model's inputs, or one mapping from their names. What is no array goes
            through numpy.asarray. Shapes have the batch dimension: a single image is [1, 3, 224, 224].
        model_version: a version or a label, "" for what the model's weights say, or the latest.
        outputs: the names of the wanted outputs, None for all. A mapping says of each how many of its best classes come
            in its place, as texts "value:index:label"; 0 is the output as it is.
        parameters: the parameters of the request; "timeout" is in microseconds.
        deadline: seconds from now, or a timedelta, after which the answer is of no use: DeadlineExceeded then.
        priority: the level in the model's queue, 0 for its default.
        request_id: what answers and errors call this request.
        """
        return self._native.infer(model, inputs, model_version, outputs, parameters, deadline, priority, request_id)

    def async_infer(
        self,
        model: str,
        /,
        *inputs: ArrayLike | Mapping[str, ArrayLike],
        model_version: str | SupportsIndex = "",
        outputs: Sequence[str] | Mapping[str, SupportsIndex] | None = None,
        parameters: Mapping[str, bool | int | float | str] | None = None,
        deadline: float | timedelta | None = None,
        priority: int = 0,
        request_id: str = "",
    ) -> Future[Result]:
        """
        The same as `infer`, as a future of the running event loop. The request is on its way when this returns;
        cancelling the future takes it out of the queue.
        """
        return self._native.async_infer(
            model, inputs, model_version, outputs, parameters, deadline, priority, request_id
        )

    def stream(
        self,
        model: str,
        /,
        *inputs: ArrayLike | Mapping[str, ArrayLike],
        model_version: str | SupportsIndex = "",
        outputs: Sequence[str] | None = None,
        parameters: Mapping[str, bool | int | float | str] | None = None,
        deadline: float | timedelta | None = None,
        priority: int = 0,
        request_id: str = "",
    ) -> Stream:
        """
        Asks a model that gives any number of answers, and iterates over them as they come, without holding the
        interpreter lock while it waits. The arguments are those of `infer`; the deadline is that of the last answer.

            for answer in engine.stream("count", np.array([3], np.int32)):
                print(answer["NUMBER"])

        The model waits while 64 of its answers, or 1 MB, have not been taken. `close()`, or dropping the iterator,
        tells it that nobody waits for the rest. A client with an `http://` url has no streams.
        """
        return self._native.stream(model, inputs, model_version, outputs, parameters, deadline, priority, request_id)

    def async_stream(
        self,
        model: str,
        /,
        *inputs: ArrayLike | Mapping[str, ArrayLike],
        model_version: str | SupportsIndex = "",
        outputs: Sequence[str] | None = None,
        parameters: Mapping[str, bool | int | float | str] | None = None,
        deadline: float | timedelta | None = None,
        priority: int = 0,
        request_id: str = "",
    ) -> AsyncStream:
        """
        The same as `stream`, for an event loop:

            async for answer in engine.async_stream("count", np.array([3], np.int32)):
                print(answer["NUMBER"])

        The request is on its way when this returns. Leaving the loop ends it, when the iterator goes or `aclose()` is
        awaited.
        """
        return AsyncStream(
            self._native.stream(model, inputs, model_version, outputs, parameters, deadline, priority, request_id)
        )

    def model(self, name: str, version: str | SupportsIndex = "") -> Model:
        """The handle of a model by any name, also one that is no Python identifier or the name of a method here"""
        key = (name, version if isinstance(version, str) else version_text(version, name))
        handle = self._handles.get(key)
        if handle is None:
            if len(self._handles) >= _HANDLES:
                self._handles.clear()
            handle = self._handles.setdefault(key, Model(self, *key))
        return handle

    def empty(self, shape: int | Sequence[int], dtype: DTypeLike = "float32") -> NDArray[Any]:
        """
        An array to fill and pass as an input. A client on a `unix://` socket makes it in memory that the engine can
        see, so that it travels without a copy; anywhere else it is `numpy.empty`.
        """
        import numpy as np  # noqa: PLC0415 - a server without callers in Python starts without it

        return np.empty(shape, dtype)

    @abstractmethod
    def close(self) -> None:
        """Ends all use; a second call does nothing"""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getattr__(self, name: str) -> Model:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        handle = self._handles.get((name, ""))
        if handle is None:
            self._check_attribute(name)
            handle = self.model(name)
        return handle

    def _check_attribute(self, name: str) -> None:
        """Raises AttributeError where it is known that no model goes by `name`"""

    def __reduce__(self) -> NoReturn:
        kind = type(self).__name__
        raise TypeError(
            f"cannot pickle {kind!r} object: it belongs to this process, make another {kind} in the other one"
        )
