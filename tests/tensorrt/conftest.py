"""
TensorRT's own Python module on a driver and libraries that stand in for NVIDIA's, which `make test-tensorrt` builds.

A process either has them from its start or never: the tests are run by that target, in a process of their own.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pytest

from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_configure() -> None:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        stands_in = hasattr(driver, "stand_in_kernel")
    except OSError:
        stands_in = False
    if not stands_in:
        raise pytest.UsageError("these tests need the driver that stands in for CUDA's: make test-tensorrt")


@pytest.fixture(autouse=True)
def _gives_memory_back() -> Iterator[None]:
    """What a test has loaded is gone behind it"""
    driver = ctypes.CDLL("libcuda.so.1")
    driver.stand_in_allocated.restype = ctypes.c_size_t
    before = driver.stand_in_allocated()
    yield
    eventually(lambda: driver.stand_in_allocated() <= before, "the memory of the GPU is given back")
