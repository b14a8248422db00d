"""Files that are one message of Protocol Buffers: none has 2 GiB, and a file with holes has any size"""

from pathlib import Path
from typing import Final

from ...errors import ConfigInvalid
from ...repository.files import check_file

__all__ = ["MOST_BYTES", "check_message", "read_message"]

MOST_BYTES: Final = 2**31 - 1
"""Of any message, in every language"""


def check_message(path: Path) -> None:
    """Raises unless it is a regular file that may be a message"""
    check_file(path)
    if (size := path.stat().st_size) > MOST_BYTES:
        raise _too_large(path, str(size))


def read_message(path: Path) -> bytes:
    """What the file holds"""
    check_message(path)
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        # it has grown meanwhile
        raise _too_large(path, f"more than {MOST_BYTES}")
    return content


def _too_large(path: Path, size: str) -> ConfigInvalid:
    expected = f"expected at most {MOST_BYTES}: no message of Protocol Buffers is larger"
    return ConfigInvalid(f"'{path}' has {size} bytes, {expected}")
