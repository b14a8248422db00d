"""
A tensor as models see it.

It holds an array of NumPy's, or what came from the wire until somebody asks for an array, or memory that came by
DLPack. Nothing is copied, but for arrays that are not contiguous.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import strings
from .datatypes import BY_NAME, Datatype, datatype_of
from .dlpack import Memory, capsule, memory_of
from .errors import TritonModelException
from .given import text

__all__ = ["Tensor"]

_BYTES = BY_NAME["BYTES"]
_BF16 = BY_NAME["BF16"]
# bytes that are copied faster than they are looked at
_SHORT = 4096


class Tensor:
    """A named tensor"""

    __slots__ = ("_array", "_datatype", "_memory", "_name", "_shape", "_wire")

    _name: str
    _datatype: Datatype
    _shape: list[int]
    # at least one of the three is there
    _array: np.ndarray[Any, Any] | None
    # of numbers the same memory as the array; strings are what they were when the tensor was made
    _wire: Any
    _memory: Memory | None

    def __init__(self, name: str, array: np.ndarray[Any, Any]) -> None:
        if type(name) is not str:
            name = text(name, "the name of a tensor")
        if not isinstance(array, np.ndarray):
            raise TypeError(f"expected an array of NumPy's for tensor '{name}', got {type(array).__name__}")
        if not name:
            raise TritonModelException("Tensor name cannot be an empty string.")
        if type(array) is not np.ndarray:
            # one of another class, as with a mask, may have other shapes and lengths than its elements
            array = np.asarray(array)
        dtype = array.dtype
        datatype = datatype_of(dtype)
        if not dtype.isnative:
            array = array.astype(dtype.newbyteorder("="))
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        self._name = name
        self._datatype = datatype
        self._shape = list(array.shape)
        self._array = array
        self._wire = strings.encoded(array) if datatype is _BYTES else None
        self._memory = None

    @classmethod
    def from_wire(cls, name: str, datatype: Datatype, shape: list[int], payload: Any) -> Tensor:
        """A tensor whose bytes came in a message; they are read where they lie, when they are asked for"""
        tensor = cls.__new__(cls)
        tensor._name = name
        tensor._datatype = datatype
        tensor._shape = shape
        tensor._array = None
        tensor._wire = payload
        tensor._memory = None
        return tensor

    @staticmethod
    def from_dlpack(name: str, tensor: Any) -> Tensor:
        """A tensor over the memory of a capsule, or of an object that makes one"""
        name = text(name, "the name of a tensor")
        if name == "":
            raise TritonModelException("Tensor name cannot be an empty string.")
        if isinstance(tensor, np.ndarray):
            return Tensor(name, tensor)
        memory = memory_of(tensor)
        array = memory.array() if memory.is_cpu and memory.datatype is not _BF16 else None
        made = Tensor.from_wire(name, memory.datatype, memory.shape, None)
        made._array = array
        made._memory = memory
        return made

    def name(self) -> str:
        """What the tensor is called"""
        return self._name

    def shape(self) -> list[int]:
        """Its dimensions, with that of the batch"""
        return list(self._shape)

    def triton_dtype(self) -> int:
        """The number that its data type has in Triton's C API"""
        return self._datatype.number

    def is_cpu(self) -> bool:
        """Whether this process can read it as it is"""
        return self._memory is None or self._memory.is_cpu

    def as_numpy(self) -> np.ndarray[Any, Any]:
        """Its elements; strings are bytes in an array of objects"""
        if self._array is None:
            self._array = self._read()
        return self._array

    def to_dlpack(self) -> Any:
        """A capsule over its memory, for one consumer"""
        if self._datatype is _BYTES:
            raise TritonModelException("DLPack does not have support for string tensors.")
        address = self._memory.address if self._memory is not None else self._bytes().ctypes.data
        return capsule(address, self._datatype, self._shape, self.__dlpack_device__(), owner=self)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """As `to_dlpack`; what is here has been written, so there is no stream to wait for"""
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("a tensor is handed over where it lies, without a copy")
        return self.to_dlpack()

    def __dlpack_device__(self) -> tuple[int, int]:
        """The kind of device and its number, as DLPack has them"""
        return (1, 0) if self._memory is None else self._memory.device

    @property
    def datatype(self) -> str:
        """The data type as the protocol calls it"""
        return self._datatype.name

    @property
    def device_memory(self) -> Memory | None:
        """Where it lies, if this process cannot read it"""
        return None if self.is_cpu() else self._memory

    def wire(self) -> Any:
        """Its bytes as they are sent; those of a GPU are copied out of it"""
        if self._wire is not None:
            return self._wire
        array = self._array
        if array is not None and array.nbytes <= _SHORT:
            return array.tobytes()
        return self._bytes().data

    def __repr__(self) -> str:
        return f"Tensor({self._name!r}, {self._datatype.name}, {self._shape})"

    def _read(self) -> np.ndarray[Any, Any]:
        """The array of what came from the wire"""
        if not self.is_cpu():
            raise TritonModelException("Tensor is stored in GPU and cannot be converted to NumPy.")
        if self._datatype is _BF16:
            raise TritonModelException("Tensor dtype is BF16 and cannot be converted to NumPy.")
        if self._datatype is _BYTES:
            return strings.decoded(self._wire).reshape(self._shape)
        return np.ndarray(self._shape, self._datatype.numpy, self._wire)

    def _bytes(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Its bytes as an array over the same memory; not for strings"""
        if self._array is not None:
            return self._array.reshape(-1).view(np.uint8)
        if self._memory is not None:
            return self._memory.on_host()
        return np.frombuffer(self._wire, dtype=np.uint8)
