"""
The configuration of backends: what the operator of a server says once, for all models of a framework, as
tritonserver's --backend-config=BACKEND,KEY=VALUE. Without a BACKEND it is about all of them.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from ..errors import ConfigInvalid, Unsupported
from ..nearest import hint

__all__ = [
    "BOOLEANS",
    "NO_SETTINGS",
    "BackendConfig",
    "boolean",
    "check_backend_config",
    "parse_backend_config",
    "settings_of",
]

BackendConfig = Mapping[str, Mapping[str, str]]
"""The settings of each backend by name; the empty name stands for all"""

NO_SETTINGS: Mapping[str, str] = MappingProxyType({})

ALL_BACKENDS = ""
_BOOLEANS = {"true": True, "false": False, "on": True, "off": False, "1": True, "0": False}
BOOLEANS = "true, false, on, off, 1 or 0"
"""How an error says what `boolean` takes"""


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _is_directory(text: str) -> bool:
    return os.path.isdir(text) and os.access(text, os.W_OK)  # noqa: PTH112 - a name that is no path is not one either


_Check = tuple[str, Callable[[str], bool]]
_SWITCH: _Check = (BOOLEANS, lambda text: text.lower() in _BOOLEANS)
_COUNT: _Check = ("a non-negative integer", _is_count)
_DIRECTORY: _Check = ("a directory that can be written to", _is_directory)

_KNOWN: Mapping[str, Mapping[str, _Check]] = MappingProxyType(
    {
        ALL_BACKENDS: {"default-max-batch-size": _COUNT},
        "onnxruntime": {
            "default-max-batch-size": _COUNT,
            "enable-global-threadpool": _SWITCH,
            "engine-cache-directory": _DIRECTORY,
            "inter_op_thread_count": _COUNT,
            "intra_op_thread_count": _COUNT,
            "profile-directory": _DIRECTORY,
        },
        "pytorch": {"default-max-batch-size": _COUNT},
    }
)


def boolean(text: str) -> bool | None:
    """As Triton's backends read a truth value, or nothing where it is none"""
    return _BOOLEANS.get(text.lower())


def parse_backend_config(texts: Iterable[str]) -> BackendConfig:
    """From the values of the flag; of a key that is given twice the last value holds"""
    config: dict[str, dict[str, str]] = {}
    for text in texts:
        named, given, value = text.partition("=")
        backend, comma, key = named.rpartition(",")
        if not given or not key or (comma and not backend):
            raise ConfigInvalid(f"--backend-config: expected BACKEND,KEY=VALUE or KEY=VALUE, got '{text}'")
        config.setdefault(backend, {})[key] = value
    return config


def check_backend_config(config: BackendConfig) -> None:
    """Raises for the first backend, key or value that is none"""
    for backend, settings in config.items():
        if backend not in _KNOWN:
            more = hint(backend, filter(None, _KNOWN))
            raise Unsupported(f"backend config: backend '{backend}' is not supported by this version, {more}")
        for key, value in settings.items():
            _check_setting(backend, key, value)
    settings = config.get("onnxruntime", {})
    for key in ("intra_op_thread_count", "inter_op_thread_count"):
        if key in settings and not boolean(settings.get("enable-global-threadpool", "0")):
            raise ConfigInvalid(
                f"backend config 'onnxruntime,{key}' is about the global thread pool: expected "
                "'onnxruntime,enable-global-threadpool=1' with it"
            )


def settings_of(config: BackendConfig, backend: str) -> Mapping[str, str]:
    """What holds for one backend: what is said of it wins over what is said of all"""
    return {**config.get(ALL_BACKENDS, {}), **config.get(backend, {})}


def _check_setting(backend: str, key: str, value: str) -> None:
    named = f"{backend},{key}" if backend else key
    known = _KNOWN[backend]
    if key not in known:
        raise Unsupported(f"backend config '{named}' is not supported by this version, {hint(key, known)}")
    expected, is_right = known[key]
    if not is_right(value):
        raise ConfigInvalid(f"backend config '{named}': expected {expected}, got '{value}'")
