"""Executes batches on a program. One object serves any number of instances, each on its own thread."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...errors import EngineFailed
from ..python_engine import ModelFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .names import Place
    from .options import TorchOptions
    from .program import Program

__all__ = ["MismatchError", "Plan", "TorchEngine", "WithoutCudnn"]


class MismatchError(ModelFailed):
    """The model gives other results than its configuration says"""


@dataclass(frozen=True)
class Plan:
    """Which values of the program the tensors of the configuration are, in its order"""

    input_places: tuple[Place, ...]
    input_types: tuple[str, ...]
    output_places: tuple[Place, ...]
    output_names: tuple[str, ...]


class WithoutCudnn(AbstractContextManager[None]):
    """
    PyTorch has cuDNN on or off once in a process. It is off while any run is in here, and on again after the last:
    PyTorch's own context would leave it off for good where two runs overlap.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs = 0
        self._before = True

    def __enter__(self) -> None:
        with self._lock:
            if self._runs == 0:
                self._before = torch.backends.cudnn.enabled
                torch.backends.cudnn.enabled = False
            self._runs += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._runs -= 1
            if self._runs == 0:
                torch.backends.cudnn.enabled = self._before


_WITHOUT_CUDNN = WithoutCudnn()


class TorchEngine:
    """What the native core calls, once per batch; PyTorch gives up the GIL while it computes"""

    def __init__(
        self,
        program: Program,
        plan: Plan,
        device: torch.device,
        options: TorchOptions,
        *,
        threads: int,
        concurrent: bool,
    ) -> None:
        self.concurrent = concurrent
        self.keeps_state = program.stateful
        self.threads = threads
        self._program = program
        self._plan = plan
        self._device = device
        self._options = options
        self._streams = threading.local()

    def execute(self, inputs: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
        """The wanted outputs of one batch, as arrays and lists of strings"""
        given = zip(self._plan.input_places, self._plan.input_types, inputs, strict=True)
        return self.run({place: _value(array, of) for place, of, array in given if array is not None}, wanted)

    def run(self, values: Mapping[Place, Any], wanted: Sequence[bool]) -> list[Any]:
        """The same on tensors in the memory of the host, and lists of strings; those that are missing are left out"""
        # Each thread has its own number, and one that was never told takes what another was told last.
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)
        try:
            with self._settings():
                results = self._program.run(self._arguments(values))
                outputs = zip(self._plan.output_places, self._plan.output_names, wanted, strict=True)
                return [_array(_pick(results, place, name), name) if asked else None for place, name, asked in outputs]
        except EngineFailed:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the model made PyTorch raise
            text = f"PyTorch execute failure: {error}"
            if isinstance(error, torch.OutOfMemoryError):
                torch.cuda.empty_cache()
                raise ModelFailed(text) from None
            raise EngineFailed(text) from None
        finally:
            if self._options.cache_cleaning and self._device.type == "cuda":
                torch.cuda.empty_cache()

    def _arguments(self, values: Mapping[Place, Any]) -> list[Any]:
        if self._program.signature.takes_dictionary:
            return [{place: self._own(value, 0) for place, value in values.items()}]
        return [
            self._own(values[index], index) if index in values else default
            for index, default in enumerate(self._program.defaults)
        ]

    def _own(self, value: Any, index: int) -> Any:  # noqa: ANN401 - a tensor or strings
        """The value where the program may work on it: its memory is the caller's, who may not see it change"""
        if not isinstance(value, torch.Tensor):
            return value
        if self._device.type != "cpu":
            return value.to(self._device)
        return value.clone() if index in self._program.writes else value

    def _settings(self) -> AbstractContextManager[object]:
        mode: AbstractContextManager[object] = (
            torch.inference_mode() if self._options.inference_mode else torch.no_grad()
        )
        if self._device.type == "cpu" and self._options.optimized_execution:
            return mode
        settings = ExitStack()
        settings.enter_context(mode)
        if not self._options.optimized_execution:
            settings.enter_context(torch.jit.optimized_execution(should_optimize=False))
        if self._device.type == "cuda":
            settings.enter_context(torch.cuda.stream(self._stream()))
            if not self._options.cudnn:
                settings.enter_context(_WITHOUT_CUDNN)
        return settings

    def _stream(self) -> torch.cuda.Stream:
        """Instances on one device do not wait for each other"""
        if not hasattr(self._streams, "own"):
            self._streams.own = torch.cuda.Stream(self._device)
        stream: torch.cuda.Stream = self._streams.own
        return stream


def _value(array: Any, datatype: str) -> Any:  # noqa: ANN401 - an array of NumPy's; a tensor or strings
    if datatype == "BYTES":
        return array.tolist()
    if datatype != "BF16":
        return torch.from_dlpack(array)
    if array.dtype.name == "float32":
        # the same value in the upper half
        halves = torch.from_dlpack(array).view(torch.int32) >> 16
        return halves.to(torch.int16).view(torch.bfloat16)
    return torch.from_dlpack(array.view("uint16")).view(torch.bfloat16)


def _pick(results: Sequence[Any] | Mapping[str, Any], place: Place, name: str) -> Any:  # noqa: ANN401 - as above
    if isinstance(results, Mapping):
        if place in results:
            return results[str(place)]
        known = ", ".join(f"'{key}'" for key in results)
        raise MismatchError(f"the model has no output '{name}', it has {known}")
    if isinstance(place, str) or place >= len(results):
        raise MismatchError(
            f"The output {name} in the model configuration refers to an output index which doesn't exist. This model "
            f"has {len(results)} outputs"
        )
    return results[place]


def _array(value: Any, name: str) -> Any:  # noqa: ANN401 - a tensor or strings; an array or strings
    if isinstance(value, list):
        return np.asarray(value, dtype=object)
    if not isinstance(value, torch.Tensor):
        raise MismatchError(f"output '{name}' is of type {type(value).__name__}, expected Tensor or List[str]")
    # NumPy has no bfloat16
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy(force=True)
