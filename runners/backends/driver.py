"""The GPUs that the driver of NVIDIA shows to this process, whichever framework is to compute on them"""

import ctypes
from functools import cache

__all__ = ["gpus", "why_none"]

_DRIVER = "libcuda.so.1"


@cache
def _found() -> tuple[int, str]:
    """How many GPUs the driver shows, and why there is none"""
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError as error:
        return 0, f"the driver of NVIDIA cannot be loaded: {error}"
    count = ctypes.c_int()
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status:
        return 0, f"the driver of NVIDIA shows no GPU: {_named(driver, status)}"
    return count.value, "the driver of NVIDIA shows no GPU, see CUDA_VISIBLE_DEVICES"


def gpus() -> tuple[int, ...]:
    """The numbers of the GPUs that this process sees"""
    return tuple(range(_found()[0]))


def why_none() -> str:
    """What is missing, where `gpus` has none"""
    return _found()[1]


def _named(driver: ctypes.CDLL, status: int) -> str:
    name = ctypes.c_char_p()
    driver.cuGetErrorName(status, ctypes.byref(name))
    return (name.value or b"").decode() or f"error {status}"
