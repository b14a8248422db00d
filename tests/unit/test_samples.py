"""Rows of a file that forms of a model are asked: how large it may be, and which files are none."""

from __future__ import annotations

import io
import os
import struct
from typing import TYPE_CHECKING
from zipfile import ZipFile

import numpy as np
import pytest

from runners import ConfigInvalid, InvalidInput, samples

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_that_unpacks_to_more_than_is_kept_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.npz"
    np.savez_compressed(path, allow_pickle=False, X=np.zeros((1024, 64), np.float32), Y=np.zeros(3, np.int8))
    assert path.stat().st_size < 4096
    arrays = samples.read_arrays(path)
    assert (arrays["X"].shape, arrays["Y"].shape) == ((1024, 64), (3,))
    monkeypatch.setattr(samples, "_MOST_BYTES", 1024 * 64 * 4)
    # each has a head of its own
    has, most = 1024 * 64 * 4 + 3 + 2 * 128, 1024 * 64 * 4
    expected = f"^samples '{path}': its arrays have {has} bytes, expected at most {most}: leave out some"
    with pytest.raises(InvalidInput, match=expected):
        samples.read_arrays(path)


def test_a_table_of_contents_that_is_larger_than_any_is_not_read(tmp_path: Path) -> None:
    path, table = tmp_path / "rows.npz", 64 << 20
    with path.open("wb") as file:
        file.seek(table)
        file.write(struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 1, 1, table, 0, 0))
    with pytest.raises(ConfigInvalid, match=f"^samples '{path}' has a table of contents of more than 33554432 bytes$"):
        samples.read_arrays(path)


def test_an_array_without_room_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.npz"
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f8", "fortran_order": False, "shape": (1 << 56,)})
    with ZipFile(path, "w") as archive:
        archive.writestr("X.npy", head.getvalue())
    with pytest.raises(InvalidInput, match=f"^samples '{path}': expected an .npz file: Unable to allocate"):
        samples.read_arrays(path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows.npz")
    with pytest.raises(ConfigInvalid, match="is a pipe, expected a regular file"):
        samples.read_arrays(tmp_path / "rows.npz")


def test_a_member_that_is_no_array_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.npz"
    np.savez(path, allow_pickle=False, X=np.zeros(3, np.int8))
    with ZipFile(path, "a") as archive:
        archive.writestr("text", b"no array")
    with pytest.raises(InvalidInput, match=f"^samples '{path}': expected an .npz file: 'text' is no array"):
        samples.read_arrays(path)


@pytest.mark.parametrize(
    ("at", "error", "text"),
    [
        (6, InvalidInput, ": expected an .npz file: "),
        (8, ConfigInvalid, " has 'X.npy' compressed by another method than deflate"),
    ],
    ids=["encrypted", "packed in an unknown way"],
)
def test_a_member_that_cannot_be_unpacked_is_refused(
    tmp_path: Path, at: int, error: type[Exception], text: str
) -> None:
    path = tmp_path / "rows.npz"
    np.savez(path, allow_pickle=False, X=np.zeros(3, np.int8))
    content = bytearray(path.read_bytes())
    # its flags, or its method, before it and in the directory at the end
    for head in (content.find(b"PK\3\4"), content.find(b"PK\1\2") + 2):
        content[head + at] = 1 if at == 6 else 99
    path.write_bytes(content)
    with pytest.raises(error, match=f"^samples '{path}'{text}"):
        samples.read_arrays(path)


def test_a_file_that_is_an_archive_at_its_end_alone_is_refused(tmp_path: Path) -> None:
    """NumPy would take it for an array of the size that its first bytes say"""
    packed = tmp_path / "packed.npz"
    np.savez(packed, allow_pickle=False, X=np.zeros(3, np.int8))
    whole = io.BytesIO()
    np.save(whole, np.zeros(3, np.int8))
    path = tmp_path / "rows.npz"
    path.write_bytes(whole.getvalue() + packed.read_bytes())
    with pytest.raises(InvalidInput, match=f"^samples '{path}': expected an .npz file: it does not begin as one"):
        samples.read_arrays(path)


def test_an_array_of_a_shape_that_no_memory_holds_is_refused(tmp_path: Path) -> None:
    array = io.BytesIO()
    header = {"descr": "|i1", "fortran_order": False, "shape": (0, 2**70)}
    np.lib.format.write_array_header_1_0(array, header)
    path = tmp_path / "rows.npz"
    with ZipFile(path, "w") as archive:
        archive.writestr("X.npy", array.getvalue())
    with pytest.raises(InvalidInput, match=f"^samples '{path}': expected an .npz file: "):
        samples.read_arrays(path)
