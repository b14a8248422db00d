"""
Memory that travels by DLPack, in both directions, by the C structures of its specification.

A capsule is for one consumer, who renames it. What it points at lives until the consumer calls its deleter, or until a
capsule that nobody consumed is dropped.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from . import cuda
from .datatypes import BY_DLPACK, Datatype
from .errors import TritonModelException

__all__ = ["CPU", "Memory", "capsule", "memory_of"]

CPU = 1
_CUDA = 2
# memory of the host that CUDA has pinned
_CUDA_HOST = 3
# the number of CUDA's default stream
_DEFAULT_STREAM = 1

# Python keeps the pointers to these names
_NAME = b"dltensor"
_USED = b"used_dltensor"


class _Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("number", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("rank", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [
        ("tensor", _Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)

_new = ctypes.pythonapi.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, _Destructor]
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.restype = ctypes.c_int
_rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
# by address, since a destructor must not take a reference to what is being dropped
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)

# what was handed out lives here, by the address of its structure
_lent: dict[int, tuple[Any, ...]] = {}


def _forget(address: int) -> None:
    _lent.pop(address, None)


def _drop(address: int) -> None:
    if _is_valid(address, _NAME):
        _delete(_pointer(address, _NAME))


def _delete(address: int) -> None:
    deleter = _Managed.from_address(address).deleter
    if deleter:
        _Deleter(deleter)(address)


# C holds their addresses for as long as this process lives
_forget_for_c = _Deleter(_forget)
_drop_for_c = _Destructor(_drop)


def capsule(address: int, datatype: Datatype, shape: list[int], device: tuple[int, int], owner: Any) -> Any:
    """A capsule over memory that its owner keeps, in C order"""
    dimensions = (ctypes.c_int64 * len(shape))(*shape)
    managed = _Managed()
    managed.tensor.data = address
    managed.tensor.device = _Device(*device)
    managed.tensor.rank = len(shape)
    code, bits = datatype.dlpack or (0, 0)
    managed.tensor.dtype = _DataType(code, bits, 1)
    managed.tensor.shape = dimensions
    managed.deleter = ctypes.cast(_forget_for_c, ctypes.c_void_p)
    at = ctypes.addressof(managed)
    _lent[at] = (owner, managed, dimensions)
    return _new(at, _NAME, _drop_for_c)


class Memory:
    """Memory that somebody else made and lends to us, until this is dropped"""

    __slots__ = ("_managed", "address", "datatype", "device", "shape")

    address: int
    datatype: Datatype
    # the kind of device and its number
    device: tuple[int, int]
    shape: list[int]

    def __init__(self, managed: int) -> None:
        tensor = _Managed.from_address(managed).tensor
        self._managed = managed
        self.shape = [tensor.shape[i] for i in range(tensor.rank)]
        self.device = (tensor.device.kind, tensor.device.number)
        self.address = (tensor.data or 0) + tensor.byte_offset
        self.datatype = BY_DLPACK[(tensor.dtype.code, tensor.dtype.bits)]

    @property
    def is_cpu(self) -> bool:
        """Whether this process can read it as it is"""
        return self.device[0] != _CUDA

    @property
    def size(self) -> int:
        """Its bytes"""
        size = self.datatype.size
        for dimension in self.shape:
            size *= dimension
        return size

    def array(self) -> np.ndarray[Any, Any]:
        """An array over it, which keeps it"""
        array: np.ndarray[Any, Any] = self.on_host().view(self.datatype.numpy)
        return array.reshape(self.shape)

    def on_host(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Its bytes: where they lie, or a copy of those of a GPU"""
        size = self.size
        if size == 0:
            return np.empty(0, dtype=np.uint8)
        if not self.is_cpu:
            return cuda.copy_to_host(self.address, size, self.device[1])
        lent = (ctypes.c_uint8 * size).from_address(self.address)
        # the array keeps this object, and this object keeps the memory
        lent.keeps = self  # type: ignore[attr-defined] # arrays of ctypes take any attribute
        return np.frombuffer(memoryview(lent), dtype=np.uint8)

    def __del__(self) -> None:
        _delete(self._managed)


def memory_of(source: Any) -> Memory:
    """The memory of a capsule, or of an object that makes one"""
    if hasattr(source, "__dlpack__"):
        on_gpu = source.__dlpack_device__()[0] == _CUDA
        source = source.__dlpack__(stream=_DEFAULT_STREAM) if on_gpu else source.__dlpack__()
    if not _is_valid(id(source), _NAME):
        raise TritonModelException(
            f"expected an unused DLPack capsule, or an object with __dlpack__, got {_described(source)}"
        )
    managed = _pointer(id(source), _NAME)
    _check(_Managed.from_address(managed).tensor)
    memory = Memory(managed)
    _rename(source, _USED)
    return memory


def _described(source: Any) -> str:
    return "one that was used" if _is_valid(id(source), _USED) else type(source).__name__


def _check(tensor: _Tensor) -> None:
    if tensor.device.kind not in (CPU, _CUDA, _CUDA_HOST):
        raise TritonModelException(f"expected DLPack memory of a CPU or of CUDA, got device type {tensor.device.kind}")
    if tensor.dtype.lanes != 1 or (tensor.dtype.code, tensor.dtype.bits) not in BY_DLPACK:
        code, bits, lanes = tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes
        raise TritonModelException(f"DLPack data type is not supported: code {code}, {bits} bits, {lanes} lanes")
    if not tensor.strides:
        return
    expected = 1
    for i in reversed(range(tensor.rank)):
        # steps are never taken along a dimension of one, and none at all where there is nothing
        if tensor.shape[i] == 0:
            return
        if tensor.shape[i] != 1 and tensor.strides[i] != expected:
            raise TritonModelException(
                "DLPack tensor is not contiguous. "
                "Only contiguous DLPack tensors that are stored in C-Order are supported."
            )
        expected *= tensor.shape[i]
