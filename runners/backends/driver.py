"""The GPUs that the driver of NVIDIA shows to this process, whichever framework is to compute on them"""

import ctypes
from functools import cache

from ..errors import EngineFailed

__all__ = ["compute_capabilities", "gpus", "memory", "why_none"]

_DRIVER = "libcuda.so.1"
# CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
_MAJOR, _MINOR = 75, 76


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


def compute_capabilities() -> tuple[int, ...]:
    """Of each GPU that this process sees, as in 80 for 8.0"""
    if not gpus():
        return ()
    driver = ctypes.CDLL(_DRIVER)
    return tuple(10 * _attribute(driver, _MAJOR, gpu) + _attribute(driver, _MINOR, gpu) for gpu in gpus())


def _attribute(driver: ctypes.CDLL, attribute: int, gpu: int) -> int:
    value = ctypes.c_int()
    device = ctypes.c_int()
    driver.cuDeviceGet(ctypes.byref(device), gpu)
    driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
    return value.value


def memory(gpu: int) -> tuple[int, int]:
    """
    How many bytes of a GPU are free, and how many it has. The driver tells it inside a context alone, which takes
    memory itself where this process has none on that GPU yet
    """
    driver = ctypes.CDLL(_DRIVER)
    device, context = ctypes.c_int(), ctypes.c_void_p()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    status = (
        driver.cuInit(0)
        or driver.cuDeviceGet(ctypes.byref(device), gpu)
        or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    )
    if not status:
        try:
            status = driver.cuCtxPushCurrent_v2(context)
            if not status:
                status = driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
                driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
        finally:
            driver.cuDevicePrimaryCtxRelease_v2(device)
    if status:
        raise EngineFailed(
            f"the driver of NVIDIA cannot say how much memory of GPU {gpu} is free: {_named(driver, status)}"
        )
    return free.value, total.value


def why_none() -> str:
    """What is missing, where `gpus` has none"""
    return _found()[1]


def _named(driver: ctypes.CDLL, status: int) -> str:
    name = ctypes.c_char_p()
    driver.cuGetErrorName(status, ctypes.byref(name))
    return (name.value or b"").decode() or f"error {status}"
