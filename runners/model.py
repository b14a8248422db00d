"""
Model: the handle of one model of an Engine or a Client, `engine.digits` or `engine.model("digits", version=3)`.

It holds no more than the two names. Whether there is such a model is known when it is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Protocol, SupportsIndex, TypeVar

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from kushi_native import Result
    from numpy.typing import ArrayLike

__all__ = ["Model"]


_Answer_co = TypeVar("_Answer_co", covariant=True)


class _Verb(Protocol[_Answer_co]):
    def __call__(
        self,
        model: str,
        /,
        *inputs: ArrayLike | Mapping[str, ArrayLike],
        model_version: str,
        outputs: Sequence[str] | Mapping[str, SupportsIndex] | None,
        parameters: Mapping[str, bool | int | float | str] | None,
        deadline: float | timedelta | None,
        priority: int,
        request_id: str,
    ) -> _Answer_co: ...


class _Verbs(Protocol):
    """What a handle needs of the Engine or the Client that made it"""

    @property
    def infer(self) -> _Verb[Result]: ...
    @property
    def async_infer(self) -> _Verb[Future[Result]]: ...


class Model:
    """
    One model, to be asked with its inputs alone: all by position, in the model's order, or all by name.

        answer = engine.digits.run(image)
        answer = await engine.digits.async_run(image=image)

    What its inputs are: `engine.get_model_metadata("digits")["inputs"]`. An input that is called as one of the options
    is, `outputs` or `deadline` say, is given in a mapping: `engine.digits.run({"deadline": array})`.
    """

    __slots__ = ("_calls", "_name", "_version")

    def __init__(self, calls: _Verbs, name: str, version: str = "") -> None:
        self._calls = calls
        self._name = name
        self._version = version

    @property
    def name(self) -> str:
        """The name of the model"""
        return self._name

    @property
    def version(self) -> str:
        """The version or label that is asked, "" for none"""
        return self._version

    def run(
        self,
        /,
        *inputs: ArrayLike | Mapping[str, ArrayLike],
        outputs: Sequence[str] | Mapping[str, SupportsIndex] | None = None,
        parameters: Mapping[str, bool | int | float | str] | None = None,
        deadline: float | timedelta | None = None,
        priority: int = 0,
        request_id: str = "",
        **named: ArrayLike,
    ) -> Result:
        """
        Asks the model and waits for its answer, without holding the interpreter lock.

        outputs, parameters, deadline, priority, request_id: as for `Engine.infer`.
        """
        return self._calls.infer(
            self._name,
            *self._chosen(inputs, named),
            model_version=self._version,
            outputs=outputs,
            parameters=parameters,
            deadline=deadline,
            priority=priority,
            request_id=request_id,
        )

    def async_run(
        self,
        /,
        *inputs: ArrayLike | Mapping[str, ArrayLike],
        outputs: Sequence[str] | Mapping[str, SupportsIndex] | None = None,
        parameters: Mapping[str, bool | int | float | str] | None = None,
        deadline: float | timedelta | None = None,
        priority: int = 0,
        request_id: str = "",
        **named: ArrayLike,
    ) -> Future[Result]:
        """The same as a future of the running event loop; cancelling it takes the request out of the queue"""
        return self._calls.async_infer(
            self._name,
            *self._chosen(inputs, named),
            model_version=self._version,
            outputs=outputs,
            parameters=parameters,
            deadline=deadline,
            priority=priority,
            request_id=request_id,
        )

    def _chosen(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        if not named:
            return inputs
        if inputs:
            names = ", ".join(map(repr, named))
            raise TypeError(
                f"model {self._name!r}: expected all inputs by position or all by name, got {len(inputs)} by position "
                f"and {names} by name"
            )
        return (named,)

    def __repr__(self) -> str:
        version = f" version {self._version}" if self._version else ""
        return f"<Model {self._name!r}{version} of {self._calls!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"cannot pickle 'Model' object: send the name {self._name!r} and ask an Engine or a Client of the other "
            "process for it"
        )
