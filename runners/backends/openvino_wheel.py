"""
The shared library of OpenVINO: the one that the installed wheel carries. It is found without importing openvino, and
its version is checked before it is loaded.

ONNX Runtime's provider for OpenVINO carries the same library. Whichever comes first is used by both, so that they have
to be of one version; the one of the wheel reads more formats, and comes first where it is there.
"""

import re
from collections.abc import Iterable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import kushi_native

from ..errors import ConfigInvalid, Unsupported

__all__ = ["check_alone", "openvino_library", "start"]

OLDEST = (2026, 4)
_INSTALL = "pip install 'kushi[openvino]'"
_LIBRARY = "libopenvino.so.*"
_MAPS = Path("/proc/self/maps")


def start() -> str:
    """Loads the library, once in a process, and answers its version"""
    library = openvino_library()
    if library is None:
        raise Unsupported(f"openvino is not installed: {_INSTALL}")
    found = version("openvino")
    numbers = tuple(int(number) for number in re.findall(r"\d+", found)[:2])
    if numbers < OLDEST:
        raise Unsupported(f"openvino {found} found, expected {OLDEST[0]}.{OLDEST[1]} or newer: {_INSTALL}")
    check_alone(library.parent)
    try:
        return kushi_native.init_openvino(str(library))
    except ConfigInvalid as error:
        raise Unsupported(str(error)) from None


def openvino_library() -> Path | None:
    """The library for C of the installed wheel, or nothing where there is none"""
    package = find_spec("openvino")
    roots = (package.submodule_search_locations if package else None) or []
    return next((path for root in roots for path in sorted(Path(root, "libs").glob("libopenvino_c.so*"))), None)


def check_alone(directory: Path, mapped: Iterable[str] | None = None) -> None:
    """
    Refuses the library in `directory` where this process has another version of it; `mapped` are the files of which it
    has parts in its memory
    """
    lines = _MAPS.read_text().splitlines() if mapped is None else mapped
    there = {path for line in lines if (path := Path(line.partition("/")[1] + line.partition("/")[2])).match(_LIBRARY)}
    own = {path.name for path in directory.glob(_LIBRARY)}
    for other in sorted(there):
        if other.name not in own:
            raise Unsupported(
                f"'{directory}' has {', '.join(sorted(own))}, and this process has {other.name} of '{other.parent}': "
                "openvino and onnxruntime-ep-openvino have to be of the same OpenVINO"
            )
