from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import pytest

from runners.worker import dlpack
from runners.worker.datatypes import BY_NAME
from runners.worker.errors import TritonModelException
from runners.worker.tensors import Tensor

NUMBERS = [name for name in BY_NAME if name not in {"BYTES", "BF16"}]


def lent() -> int:
    """How many capsules, or what was made of them, are alive."""
    gc.collect()
    return len(dlpack._lent)


@pytest.mark.parametrize("name", NUMBERS)
def test_a_capsule_carries_a_tensor_without_a_copy(name: str) -> None:
    array = np.arange(6).astype(BY_NAME[name].numpy).reshape(2, 3)
    came = Tensor.from_dlpack("y", Tensor("x", array).to_dlpack())
    assert (came.name(), came.datatype, came.shape()) == ("y", name, [2, 3])
    assert came.as_numpy().tolist() == array.tolist()
    assert np.shares_memory(came.as_numpy(), array)
    assert bytes(came.wire()) == array.tobytes()


def test_a_tensor_is_taken_as_it_is() -> None:
    array = np.array([True, False])
    assert np.shares_memory(Tensor.from_dlpack("y", Tensor("x", array)).as_numpy(), array)


@pytest.mark.skipif(not hasattr(np, "from_dlpack"), reason="this NumPy has no DLPack")
@pytest.mark.parametrize("name", [name for name in NUMBERS if name != "BOOL"])
def test_numpy_takes_a_tensor(name: str) -> None:
    array = np.arange(6).astype(BY_NAME[name].numpy).reshape(2, 3)
    taken = np.from_dlpack(Tensor("x", array))
    assert np.shares_memory(taken, array)
    assert taken.dtype == array.dtype


@pytest.mark.skipif(not hasattr(np.ndarray, "__dlpack__"), reason="this NumPy has no DLPack")
def test_a_capsule_of_numpy_is_taken() -> None:
    array = np.arange(4, dtype=np.float32)
    tensor = Tensor.from_dlpack("x", array.__dlpack__())
    assert np.shares_memory(tensor.as_numpy(), array)


def test_an_array_is_taken_as_it_is() -> None:
    array = np.arange(4)
    array.flags.writeable = False
    assert Tensor.from_dlpack("x", array).as_numpy() is array


def test_bf16_travels_by_dlpack_alone() -> None:
    tensor = Tensor.from_wire("x", BY_NAME["BF16"], [2, 1], bytearray(b"\x80\x3f\x00\x40"))
    came = Tensor.from_dlpack("y", tensor)
    assert (came.datatype, came.shape(), bytes(came.wire())) == ("BF16", [2, 1], b"\x80\x3f\x00\x40")
    with pytest.raises(TritonModelException, match="BF16"):
        came.as_numpy()


def test_a_tensor_lives_as_long_as_its_capsule() -> None:
    before = lent()
    tensor = Tensor("x", np.zeros(3))
    references = sys.getrefcount(tensor)
    capsule = tensor.to_dlpack()
    assert sys.getrefcount(tensor) == references + 1
    del capsule
    assert sys.getrefcount(tensor) == references
    assert lent() == before


def test_memory_lives_as_long_as_an_array_over_it() -> None:
    before = lent()
    array = Tensor.from_dlpack("y", Tensor("x", np.arange(3)).to_dlpack()).as_numpy()
    assert lent() == before + 1
    part = array[1:]
    del array
    assert part.tolist() == [1, 2]
    assert lent() == before + 1
    del part
    assert lent() == before


def test_a_capsule_is_taken_once() -> None:
    capsule = Tensor("x", np.zeros(3)).to_dlpack()
    taken = Tensor.from_dlpack("y", capsule)
    with pytest.raises(TritonModelException, match="one that was used"):
        Tensor.from_dlpack("z", capsule)
    assert taken.as_numpy().tolist() == [0, 0, 0]


def test_strings_have_no_capsule() -> None:
    with pytest.raises(TritonModelException, match=r"^DLPack does not have support for string tensors\.$"):
        Tensor("x", np.array(["a"], dtype=np.object_)).to_dlpack()


@pytest.mark.skipif(not hasattr(np.ndarray, "__dlpack__"), reason="this NumPy has no DLPack")
def test_memory_that_is_not_contiguous_is_refused_and_given_back() -> None:
    array = np.zeros((2, 3), dtype=np.float32)
    references = sys.getrefcount(array)
    capsule: Any = array.T.__dlpack__()
    with pytest.raises(TritonModelException, match=r"^DLPack tensor is not contiguous\. Only contiguous"):
        Tensor.from_dlpack("x", capsule)
    del capsule
    assert sys.getrefcount(array) == references


@pytest.mark.skipif(not hasattr(np.ndarray, "__dlpack__"), reason="this NumPy has no DLPack")
def test_dimensions_of_one_may_have_any_step() -> None:
    array = np.zeros((4, 1, 5), dtype=np.float32)[1:2]
    assert Tensor.from_dlpack("x", array.__dlpack__()).shape() == [1, 1, 5]


@pytest.mark.skipif(not hasattr(np.ndarray, "__dlpack__"), reason="this NumPy has no DLPack")
def test_complex_numbers_are_refused() -> None:
    with pytest.raises(TritonModelException, match="code 5, 64 bits, 1 lanes"):
        Tensor.from_dlpack("x", np.zeros(1, dtype=np.complex64).__dlpack__())


@pytest.mark.parametrize("source", [None, 3, "text"])
def test_other_things_are_refused(source: Any) -> None:
    with pytest.raises(TritonModelException, match="DLPack capsule"):
        Tensor.from_dlpack("x", source)
    with pytest.raises(TritonModelException, match="empty"):
        Tensor.from_dlpack("", source)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0)])
def test_scalars_and_nothing_travel(shape: tuple[int, ...]) -> None:
    came = Tensor.from_dlpack("y", Tensor("x", np.ones(shape, dtype=np.float32)).to_dlpack())
    assert came.as_numpy().shape == shape
    assert came.as_numpy().tolist() == np.ones(shape).tolist()


def test_a_tensor_says_where_it_lies() -> None:
    tensor = Tensor("x", np.zeros(1))
    assert (tensor.is_cpu(), tensor.__dlpack_device__(), tensor.device_memory) == (True, (1, 0), None)


class OnGpu:
    """Speaks DLPack for memory of a GPU that nobody looks at."""

    def __init__(self) -> None:
        self.streams: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 3)

    def __dlpack__(self, stream: Any = None) -> Any:
        self.streams.append(stream)
        return dlpack.capsule(0x1000, BY_NAME["FP16"], [2, 2], (2, 3), owner=self)


def test_memory_of_a_gpu_stays_where_it_is() -> None:
    source = OnGpu()
    tensor = Tensor.from_dlpack("x", source)
    # the default stream, which the source makes wait for its own
    assert source.streams == [1]
    assert (tensor.is_cpu(), tensor.__dlpack_device__(), tensor.datatype) == (False, (2, 3), "FP16")
    with pytest.raises(TritonModelException, match=r"^Tensor is stored in GPU and cannot be converted to NumPy\.$"):
        tensor.as_numpy()
    again = Tensor.from_dlpack("y", tensor)
    memory = again.device_memory
    assert memory is not None
    assert (memory.address, memory.size, memory.device) == (0x1000, 8, (2, 3))


def test_memory_of_a_gpu_that_cannot_be_read_is_an_error() -> None:
    # there is no driver, or nothing at that address
    with pytest.raises(TritonModelException, match="CUDA"):
        Tensor.from_dlpack("x", OnGpu()).wire()


def test_a_copy_to_another_device_is_refused() -> None:
    with pytest.raises(BufferError):
        Tensor("x", np.zeros(1)).__dlpack__(dl_device=(2, 0))
