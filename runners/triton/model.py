"""
TritonModel: one model of a TritonRunner, `triton_runner.digits`.

Inputs are arrays, or the InferInput of tritonclient; all by position, in the model's order, or all by name.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kushi_native import Result

    from ..calls import Calls

__all__ = ["TritonModel", "as_array", "reader_of"]

Asked = TypeVar("Asked")
"""A Result, or a future of one"""


class TritonModel:
    """One model, to be asked with its inputs alone"""

    __slots__ = ("_name", "_opened", "_ready")

    def __init__(self, name: str, opened: Callable[[], Calls], ready: Callable[[], Awaitable[Calls]]) -> None:
        self._name = name
        self._opened = opened
        self._ready = ready

    def run(self, /, *inputs: Any, **named: Any) -> Result:  # noqa: ANN401 - an array-like or an InferInput
        """Asks the model and waits for its answer; not for an event loop"""
        return _ask(self._opened().model(self._name).run, inputs, named)

    async def async_run(self, /, *inputs: Any, **named: Any) -> Result:  # noqa: ANN401 - as above
        """Asks the model"""
        calls = await self._ready()
        return await _ask(calls.model(self._name).async_run, inputs, named)

    def __repr__(self) -> str:
        return f"<TritonModel {self._name!r}>"


def as_array(given: Any) -> Any:  # noqa: ANN401 - an array-like or an InferInput
    """The data of an InferInput of tritonclient; anything else as it is"""
    reader = reader_of(given)
    return given if reader is None else reader.array(given)


def reader_of(given: object) -> Any:  # noqa: ANN401 - a module
    """The module that reads `given` where it is an object of tritonclient, otherwise None"""
    if not type(given).__module__.startswith("tritonclient."):
        return None
    return import_module(".inputs", __package__)


def _ask(run: Callable[..., Asked], inputs: tuple[Any, ...], named: dict[str, Any]) -> Asked:
    """Inputs by name go in a mapping, whatever they are called"""
    arrays = {name: as_array(given) for name, given in named.items()}
    if inputs:
        return run(*map(as_array, inputs), **arrays)
    return run(arrays) if arrays else run()
