"""
The shared library of ONNX Runtime: the one that the installed wheel carries. It is found without importing onnxruntime,
and its version is checked before it is loaded.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import kushi_native

from ...environment import set_variable
from ...errors import ConfigInvalid, Unsupported
from ...repository.values import boolean
from ...threads import usable_cores
from .. import driver
from . import cuda

__all__ = ["Runtime", "runtime_library", "start"]

OLDEST, FIRST_UNKNOWN = (1, 31), (1, 32)
_WHEELS = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino")


@dataclass(frozen=True)
class Runtime:
    """ONNX Runtime, loaded: what it can compute on, and the threads that all sessions share, if they do"""

    version: str
    providers: tuple[str, ...]
    global_threads: tuple[int, int] | None

    def gpus(self) -> tuple[int, ...]:
        """The numbers of the GPUs that a session can be on"""
        return driver.gpus() if cuda.PROVIDER in self.providers else ()

    def why_no_gpu(self) -> str:
        """What is missing, where `gpus` has none"""
        if cuda.PROVIDER not in self.providers:
            return f"{self.lack(cuda.PROVIDER)}: pip install 'kushi[gpu]' in the place of 'kushi[cpu]'"
        return driver.why_none()

    def lack(self, provider: str) -> str:
        """That the library has no such provider"""
        return f"onnxruntime {self.version} has no {provider}, it has {', '.join(self.providers)}"


def start(settings: Mapping[str, str]) -> Runtime:
    """Loads the library, once in a process, with the threads that the settings of the backend say"""
    threads = None
    if boolean(settings.get("enable-global-threadpool", "0")):
        cores = usable_cores()
        threads = (
            int(settings.get("intra_op_thread_count", "0")) or cores,
            int(settings.get("inter_op_thread_count", "0")) or cores,
        )
    # its releases carry telemetry
    set_variable("ORT_DISABLE_TELEMETRY", "1")
    loaded = kushi_native.init_onnxruntime(str(runtime_library()), threads)
    return Runtime(loaded, tuple(kushi_native.onnxruntime_providers()), threads)


def runtime_library() -> Path:
    """The shared library of the installed wheel, its version checked"""
    package = find_spec("onnxruntime")
    roots = (package.submodule_search_locations if package else None) or []
    # of several environments the first counts, as for an import; of several files the one that says its version
    capi = next((capi for root in roots if list((capi := Path(root, "capi")).glob("libonnxruntime.so*"))), None)
    if capi is None:
        raise Unsupported("onnxruntime is not installed: pip install 'kushi[cpu]' (or 'kushi[gpu]')")
    library = max(capi.glob("libonnxruntime.so*"), key=lambda path: _numbers(path.name))
    found = _version_of(library)
    numbers = tuple(_numbers(found)[:2])
    if not OLDEST <= numbers < FIRST_UNKNOWN:
        raise Unsupported(
            f"onnxruntime {found} found, expected {OLDEST[0]}.{OLDEST[1]}"
            f"{' or newer' if numbers < OLDEST else ''}: pip install 'kushi[cpu]'"
        )
    return library


def _version_of(library: Path) -> str:
    """As its file says it: of several wheels, that of another one may be what an installer has on record"""
    named = library.name.partition(".so.")[2]
    if len(_numbers(named)) > 1:
        return named
    for wheel in _WHEELS:
        try:
            return version(wheel)
        except PackageNotFoundError:
            continue
    raise ConfigInvalid(f"cannot tell the version of '{library}': pip install 'kushi[cpu]'")


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]
