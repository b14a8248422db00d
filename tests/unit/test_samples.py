"""Rows of a file that forms of a model are asked: how large it may be, and which files are none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

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


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows.npz")
    with pytest.raises(ConfigInvalid, match="is a pipe, expected a regular file"):
        samples.read_arrays(tmp_path / "rows.npz")
