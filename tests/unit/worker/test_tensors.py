from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from runners.worker import strings
from runners.worker.datatypes import BY_NAME
from runners.worker.errors import TritonModelException
from runners.worker.tensors import Tensor

if TYPE_CHECKING:
    from pathlib import Path

NUMBERS = [name for name, datatype in BY_NAME.items() if name not in {"BYTES", "BF16"}]


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_come_from_the_wire_and_go_back_as_they_are(name: str) -> None:
    datatype = BY_NAME[name]
    payload = bytearray(np.arange(6).astype(datatype.numpy).tobytes())
    tensor = Tensor.from_wire("x", BY_NAME[name], [2, 3], payload)
    array = tensor.as_numpy()
    assert (tensor.name(), tensor.shape(), tensor.triton_dtype()) == ("x", [2, 3], datatype.number)
    assert array.dtype == datatype.numpy
    assert array.tolist() == np.arange(6).astype(datatype.numpy).reshape(2, 3).tolist()
    again = Tensor("y", array)
    assert (again.datatype, bytes(again.wire())) == (name, bytes(payload))


def test_an_array_lies_where_its_bytes_came() -> None:
    payload = bytearray(8)
    array = Tensor.from_wire("x", BY_NAME["INT32"], [2], payload).as_numpy()
    array[1] = 7
    assert struct.unpack("<2i", payload) == (0, 7)


def test_what_was_changed_in_place_is_sent_changed() -> None:
    tensor = Tensor.from_wire("x", BY_NAME["INT32"], [1], bytearray(4))
    tensor.as_numpy()[0] = 5
    assert bytes(tensor.wire()) == struct.pack("<i", 5)


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("columns", [2, 2000])
@pytest.mark.parametrize("kind", ["matrix", "masked", "memmap", "strings", "record"])
def test_an_array_of_another_class_is_sent_as_its_elements(tmp_path: Path, kind: str, columns: int) -> None:
    plain = np.arange(2 * columns, dtype=np.float32).reshape(2, columns)
    given: Any = plain
    if kind == "matrix":
        given = np.asmatrix(plain)
    elif kind == "masked":
        given = np.ma.masked_array(plain, plain > 1)
    elif kind == "memmap":
        plain.tofile(tmp_path / "numbers")
        given = np.memmap(tmp_path / "numbers", np.float32, "r", shape=plain.shape)
    elif kind == "strings":
        plain = np.array([[b"abc"] * columns] * 2, dtype=np.object_)
        given = np.asmatrix(plain)
    else:
        given = plain.view(np.recarray)
    tensor = Tensor("x", given)
    wire = tensor.wire()
    assert type(tensor.as_numpy()) is np.ndarray
    assert tensor.shape() == [2, columns]
    assert len(wire) == memoryview(wire).nbytes
    assert bytes(wire) == (strings.encoded(plain) if kind == "strings" else plain.tobytes())


def test_nobody_can_change_the_shape_from_outside() -> None:
    tensor = Tensor("x", np.zeros((2, 3)))
    tensor.shape().append(4)
    assert tensor.shape() == [2, 3]


def test_strings_are_bytes() -> None:
    payload = strings.encoded(np.array(["héllo", b"\xff\x00", ""], dtype=np.object_))
    array = Tensor.from_wire("x", BY_NAME["BYTES"], [3, 1], payload).as_numpy()
    assert array.dtype == np.object_
    assert array.tolist() == [["héllo".encode()], [b"\xff\x00"], [b""]]


def test_strings_that_nobody_has_read_are_handed_on_unread() -> None:
    payload = strings.encoded(np.array([b"a", b"b"], dtype=np.object_))
    assert Tensor.from_wire("x", BY_NAME["BYTES"], [2], payload).wire() is payload


def test_strings_are_sent_as_they_were_when_the_tensor_was_made() -> None:
    array = np.array([b"a"], dtype=np.object_)
    tensor = Tensor("x", array)
    array[0] = b"changed"
    assert strings.decoded(tensor.wire()).tolist() == [b"a"]


def test_strings_that_cannot_be_sent_are_refused_where_they_are_given() -> None:
    with pytest.raises(UnicodeEncodeError):
        Tensor("x", np.array(["\ud800"], dtype=np.object_))


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a", b"b"], dtype=np.object_),
        np.array([b"a", b"b"], dtype=np.bytes_),
        np.array(["a", "b"]),
    ],
)
def test_strings_of_every_kind_are_sent_alike(array: np.ndarray[Any, Any]) -> None:
    tensor = Tensor("x", array)
    assert tensor.datatype == "BYTES"
    assert strings.decoded(tensor.wire()).tolist() == [b"a", b"b"]


def test_buffers_are_strings() -> None:
    array = np.empty(2, dtype=np.object_)
    array[0], array[1] = bytearray(b"a"), memoryview(b"b")
    assert strings.decoded(Tensor("x", array).wire()).tolist() == [b"a", b"b"]


def test_other_objects_are_sent_as_they_are_printed() -> None:
    assert strings.decoded(Tensor("x", np.array([1.5, None], dtype=np.object_)).wire()).tolist() == [b"1.5", b"None"]


@pytest.mark.parametrize("payload", [b"\x01\x00", b"\x02\x00\x00\x00a"])
def test_strings_that_end_too_early_are_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match="ends at byte"):
        Tensor.from_wire("x", BY_NAME["BYTES"], [1], payload).as_numpy()


def test_an_array_that_is_not_contiguous_is_sent_in_c_order() -> None:
    array = np.arange(6, dtype=np.int8).reshape(2, 3).T
    tensor = Tensor("x", array)
    assert tensor.shape() == [3, 2]
    assert bytes(tensor.wire()) == bytes([0, 3, 1, 4, 2, 5])


def test_strings_that_are_not_contiguous_are_sent_in_c_order() -> None:
    array = np.array([[b"a", b"b"], [b"c", b"d"]], dtype=np.object_).T
    assert strings.decoded(Tensor("x", array).wire()).tolist() == [b"a", b"c", b"b", b"d"]


def test_the_other_byte_order_is_turned() -> None:
    tensor = Tensor("x", np.array([1], dtype=">i4"))
    assert (tensor.datatype, bytes(tensor.wire())) == ("INT32", b"\x01\x00\x00\x00")


@pytest.mark.parametrize("shape", [(), (0,), (2, 0)])
def test_scalars_and_empty_arrays_are_sent(shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, dtype=np.float32)
    tensor = Tensor("x", array)
    assert tensor.shape() == list(shape)
    assert len(bytes(tensor.wire())) == array.nbytes
    again = Tensor.from_wire("x", BY_NAME["FP32"], list(shape), bytes(tensor.wire()))
    assert again.as_numpy().shape == shape


def test_a_tensor_keeps_the_array_it_was_made_with() -> None:
    array = np.zeros(3)
    assert Tensor("x", array).as_numpy() is array


def test_bf16_has_no_array() -> None:
    tensor = Tensor.from_wire("x", BY_NAME["BF16"], [2], bytearray(b"\x80\x3f\x00\x40"))
    with pytest.raises(TritonModelException, match="Tensor dtype is BF16 and cannot be converted to NumPy"):
        tensor.as_numpy()
    assert bytes(tensor.wire()) == b"\x80\x3f\x00\x40"


@pytest.mark.parametrize("array", [None, [1, 2], np.float32(1)])
def test_only_arrays_make_a_tensor(array: Any) -> None:
    with pytest.raises(TypeError):
        Tensor("x", array)


def test_a_tensor_has_a_name() -> None:
    with pytest.raises(TypeError):
        Tensor(None, np.zeros(1))  # type: ignore[arg-type] # what the test is about
    with pytest.raises(TritonModelException, match="empty"):
        Tensor("", np.zeros(1))


def test_complex_numbers_are_refused() -> None:
    with pytest.raises(TritonModelException, match="complex64"):
        Tensor("x", np.zeros(1, dtype=np.complex64))
