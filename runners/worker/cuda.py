"""A copy out of a GPU, by its driver alone: the process of a model need not have any framework that could do it"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .errors import TritonModelException

__all__ = ["copy_to_host"]


def copy_to_host(address: int, size: int, device: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bytes at an address of a GPU, once all that was begun there has been done"""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise TritonModelException(f"the driver of CUDA cannot be loaded: {error}") from None
    host: np.ndarray[Any, np.dtype[np.uint8]] = np.empty(size, dtype=np.uint8)
    handle = ctypes.c_int()
    context = ctypes.c_void_p()
    _check("cuInit", driver.cuInit(0))
    _check("cuDeviceGet", driver.cuDeviceGet(ctypes.byref(handle), device))
    _check("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), handle))
    try:
        _check("cuCtxPushCurrent", driver.cuCtxPushCurrent_v2(context))
        try:
            # a capsule does not say which stream writes to its memory
            _check("cuCtxSynchronize", driver.cuCtxSynchronize())
            copied = driver.cuMemcpyDtoH_v2(
                ctypes.c_void_p(host.ctypes.data), ctypes.c_uint64(address), ctypes.c_size_t(size)
            )
            _check("cuMemcpyDtoH", copied)
        finally:
            driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
    finally:
        driver.cuDevicePrimaryCtxRelease_v2(handle)
    return host


def _check(call: str, status: int) -> None:
    if status != 0:
        raise TritonModelException(f"{call} of CUDA's driver failed with status {status}")
