"""Tensors of Python models, to PyTorch and back."""

import gc

import numpy as np
import pytest
import torch
from torch.utils.dlpack import from_dlpack, to_dlpack

from runners.worker import dlpack
from runners.worker.datatypes import BY_NAME
from runners.worker.errors import TritonModelException
from runners.worker.tensors import Tensor

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_tensor_goes_to_pytorch_and_comes_back(dtype: torch.dtype) -> None:
    original = torch.arange(6).reshape(2, 3).to(dtype)
    for given in (original, to_dlpack(original)):
        tensor = Tensor.from_dlpack("x", given)
        assert (tensor.shape(), tensor.is_cpu(), tensor.__dlpack_device__()) == ([2, 3], True, (1, 0))
        for taken in (from_dlpack(tensor.to_dlpack()), from_dlpack(tensor), torch.from_dlpack(tensor)):
            assert taken.dtype == dtype
            assert taken.data_ptr() == original.data_ptr()
            assert torch.equal(taken, original)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_came_by_the_wire_goes_to_pytorch(dtype: torch.dtype) -> None:
    original = torch.arange(6).reshape(2, 3).to(dtype)
    sent = Tensor.from_dlpack("x", original)
    came = Tensor.from_wire("x", BY_NAME[sent.datatype], sent.shape(), bytearray(sent.wire()))
    assert torch.equal(from_dlpack(came.to_dlpack()), original)


def test_pytorch_sees_the_memory_of_an_array() -> None:
    array = np.zeros(3, dtype=np.float32)
    torch.from_dlpack(Tensor("x", array))[1] = 5
    assert array.tolist() == [0, 5, 0]


def test_a_transposed_tensor_is_refused() -> None:
    with pytest.raises(TritonModelException) as raised:
        Tensor.from_dlpack("x", to_dlpack(torch.zeros(2, 3).T))
    assert str(raised.value) == (
        "DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored in C-Order are supported."
    )


def test_memory_is_given_back() -> None:
    before = len(dlpack._lent)
    taken = torch.from_dlpack(Tensor("x", np.zeros(3)))
    assert len(dlpack._lent) == before + 1
    del taken
    gc.collect()
    assert len(dlpack._lent) == before


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_tensor_of_a_gpu_stays_there_until_it_is_sent(dtype: torch.dtype) -> None:
    original = torch.arange(6, device="cuda").reshape(2, 3).to(dtype)
    for given in (original, to_dlpack(original)):
        tensor = Tensor.from_dlpack("x", given)
        assert (tensor.shape(), tensor.is_cpu(), tensor.__dlpack_device__()) == ([2, 3], False, (2, 0))
        with pytest.raises(TritonModelException, match="stored in GPU"):
            tensor.as_numpy()
        taken = torch.from_dlpack(tensor)
        assert taken.data_ptr() == original.data_ptr()
        came = Tensor.from_wire("x", BY_NAME[tensor.datatype], tensor.shape(), bytearray(tensor.wire()))
        assert torch.equal(torch.from_dlpack(came), original.cpu())


@pytest.mark.gpu
def test_work_of_another_stream_is_waited_for() -> None:
    with torch.cuda.stream(torch.cuda.Stream()):
        matrix = torch.randn(5000, 5000, device="cuda")
        for _ in range(50):
            matrix = torch.nn.functional.normalize(matrix @ matrix)
        result = torch.zeros(4, device="cuda") + 2
        tensor = Tensor.from_dlpack("x", result)
    assert np.frombuffer(tensor.wire(), dtype=np.float32).tolist() == [2, 2, 2, 2]
