"""The settings of PyTorch under which a model runs, as its parameters say"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .options import TorchOptions

__all__ = ["WithoutCudnn", "modes"]


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


def modes(
    options: TorchOptions, on_device: AbstractContextManager[object], *, uses_gpu: bool
) -> AbstractContextManager[object]:
    """`on_device`: inside, PyTorch works on the stream of the instance"""
    gradients: AbstractContextManager[object] = torch.inference_mode() if options.inference_mode else torch.no_grad()
    if not uses_gpu and options.optimized_execution:
        return gradients
    settings = _both(gradients, on_device)
    if not options.optimized_execution:
        settings = _both(torch.jit.optimized_execution(should_optimize=False), settings)
    if uses_gpu and not options.cudnn:
        settings = _both(settings, _WITHOUT_CUDNN)
    return settings


@contextmanager
def _both(outer: AbstractContextManager[object], inner: AbstractContextManager[object]) -> Iterator[None]:
    """The outer one is left again where the inner one fails. For each batch: an ExitStack would take longer"""
    with outer, inner:
        yield
