"""Files beside a generative model, no longer than they may be"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...bounded_json import read_json
from ...errors import ConfigInvalid

__all__ = ["read_file", "read_object"]

_MOST_BYTES = 256 << 20


def read_file(path: Path) -> bytes:
    """Its content"""
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ConfigInvalid(f"'{path}' has more than {_MOST_BYTES} bytes")
    return content


def read_object(path: Path) -> Mapping[str, Any]:
    """Of a file of JSON"""
    try:
        said = read_json(read_file(path))
    except FileNotFoundError:
        raise ConfigInvalid(f"unable to find '{path}'") from None
    except (ValueError, RecursionError) as error:
        raise ConfigInvalid(f"'{path}' is no JSON: {error}") from error
    if not isinstance(said, dict):
        raise ConfigInvalid(f"'{path}' is no JSON object")
    return said
