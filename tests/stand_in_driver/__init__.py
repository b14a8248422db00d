"""
NVIDIA's driver where there is no GPU, written in C: `cuda.h` says what the library of CUDA does, `nvml.c` is NVML.

`python -m tests.stand_in_driver FOLDER` makes the one of CUDA.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["CUDA", "HERE", "NVML", "make_cuda", "make_nvml"]

CUDA: Final = "libcuda.so.1"
HERE: Final = "libstand-in-cuda.so"
"""
The name of one for this process alone. By the name of NVIDIA's, whatever looks for a GPU in this process later would
find it: a library that is loaded is found by its name.
"""
NVML: Final = "libnvidia-ml.so.1"
_SOURCES: Final = Path(__file__).parent


def make_cuda(folder: Path, name: str = CUDA) -> Path:
    """The library; its folder belongs into LD_LIBRARY_PATH"""
    return _make(folder / name, ("devices.c", "memory.c", "streams.c"), "-fvisibility=hidden")


def make_nvml(folder: Path, uuids: Iterable[str]) -> Path:
    """The library, which shows GPUs of these names, and reads the files in its folder"""
    names = ", ".join(f'"{uuid}"' for uuid in uuids)
    return _make(folder / NVML, ("nvml.c",), f"-DUUIDS={names}", f'-DFOLDER="{folder}"')


def _make(library: Path, sources: Iterable[str], *flags: str) -> Path:
    command = ["cc", "-O1", "-Wall", "-shared", "-fPIC", "-pthread", f"-Wl,-soname,{library.name}", *flags]
    subprocess.run([*command, "-o", str(library), *(str(_SOURCES / name) for name in sources)], check=True)
    return library
