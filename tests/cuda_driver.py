"""NVIDIA's driver as a client's process sees it: that of a GPU, or the one of `tests/stand_in_driver`."""

from __future__ import annotations

import base64
import ctypes
import fcntl
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

from tests.stand_in_driver import CUDA

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Gpu", "Memory"]

HANDLE_BYTES: Final = 64


class Gpu:
    """A GPU of this process"""

    def __init__(self, driver: str = CUDA, device: int = 0) -> None:
        self.driver = ctypes.CDLL(driver)
        self.device = device
        handle = ctypes.c_int()
        self._context = ctypes.c_void_p()
        self.check(self.driver.cuInit(0))
        self.check(self.driver.cuDeviceGet(ctypes.byref(handle), device))
        self.check(self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(self._context), handle))

    def check(self, status: int) -> None:
        if status:
            name = ctypes.c_char_p()
            self.driver.cuGetErrorName(status, ctypes.byref(name))
            raise RuntimeError(f"the driver answered {(name.value or b'').decode()} ({status})")

    @contextmanager
    def current(self) -> Iterator[Any]:
        self.check(self.driver.cuCtxPushCurrent_v2(self._context))
        try:
            yield self.driver
        finally:
            self.driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))


class Memory:
    """An allocation on a GPU, freed at the end of its block"""

    def __init__(self, gpu: Gpu, content: bytes | int) -> None:
        """`content` is the bytes, or how many of them, all zero"""
        content = bytes(content) if isinstance(content, int) else content
        self.gpu = gpu
        self.size = len(content)
        self._address = ctypes.c_uint64()
        self._handle = (ctypes.c_char * HANDLE_BYTES)()
        with gpu.current() as driver:
            gpu.check(driver.cuMemAlloc_v2(ctypes.byref(self._address), ctypes.c_size_t(self.size)))
            gpu.check(driver.cuIpcGetMemHandle(ctypes.byref(self._handle), self._address))
        self.write(content)

    @property
    def handle(self) -> bytes:
        """As `tritonclient` wants it"""
        return base64.b64encode(self._handle.raw)

    def write(self, content: bytes, offset: int = 0) -> None:
        to = ctypes.c_uint64(self._address.value + offset)
        with self.gpu.current() as driver:
            self.gpu.check(driver.cuMemcpyHtoD_v2(to, content, ctypes.c_size_t(len(content))))
            self.gpu.check(driver.cuCtxSynchronize())

    def read(self, offset: int = 0, size: int | None = None) -> bytes:
        content = ctypes.create_string_buffer(self.size - offset if size is None else size)
        start = ctypes.c_uint64(self._address.value + offset)
        with self.gpu.current() as driver:
            self.gpu.check(driver.cuMemcpyDtoH_v2(content, start, ctypes.c_size_t(len(content))))
        return content.raw

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Copies wait, with the driver that stands in for one"""
        _, _, file = struct.unpack_from("8sii", self._handle.raw)
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self.gpu.current() as driver:
            self.gpu.check(driver.cuMemFree_v2(self._address))
