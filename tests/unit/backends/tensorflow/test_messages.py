"""Files that are messages: what is larger than any message is not read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from runners import ConfigInvalid
from runners.backends.tensorflow import messages
from runners.backends.tensorflow.messages import check_message, read_message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize("take", [check_message, read_message])
def test_a_file_larger_than_any_message_is_refused(tmp_path: Path, take: Callable[[Path], object]) -> None:
    path = tmp_path / "model.graphdef"
    path.touch()
    # all of it is a hole
    os.truncate(path, 2**40)
    with pytest.raises(ConfigInvalid, match=f"^'{path}' has {2**40} bytes, expected at most {2**31 - 1}: no message"):
        take(path)


def test_a_file_is_read_whole_up_to_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MOST_BYTES", 4)
    path = tmp_path / "model.graphdef"
    path.write_bytes(b"1234")
    assert read_message(path) == b"1234"
    path.write_bytes(b"12345")
    with pytest.raises(ConfigInvalid, match="has 5 bytes, expected at most 4"):
        read_message(path)


def test_a_pipe_is_no_message(tmp_path: Path) -> None:
    path = tmp_path / "model.graphdef"
    os.mkfifo(path)
    with pytest.raises(ConfigInvalid, match="is a pipe, expected a regular file"):
        read_message(path)
