"""
The configuration of backends: what the operator of a server says once, for all models of a framework, as
tritonserver's --backend-config=BACKEND,KEY=VALUE. Without a BACKEND it is about all of them.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ..errors import ConfigInvalid, Unsupported
from ..nearest import hint
from .discovery import descriptors, refusal
from .values import COUNT, Setting

__all__ = [
    "NO_SETTINGS",
    "BackendConfig",
    "check_backend_config",
    "describe_settings",
    "parse_backend_config",
    "settings_of",
]

BackendConfig = Mapping[str, Mapping[str, str]]
"""The settings of each backend by name; the empty name stands for all"""

NO_SETTINGS: Mapping[str, str] = MappingProxyType({})

ALL_BACKENDS = ""
_COMMON: Mapping[str, Setting] = MappingProxyType({"default-max-batch-size": COUNT})
"""What may be said of every backend, and of all of them"""


def parse_backend_config(texts: Iterable[str], source: str) -> BackendConfig:
    """From the values of `source`, a flag or a variable; of a key that is given twice the last value holds"""
    config: dict[str, dict[str, str]] = {}
    for text in texts:
        named, given, value = text.partition("=")
        backend, comma, key = named.rpartition(",")
        if not given or not key or (comma and not backend):
            raise ConfigInvalid(f"{source}: expected BACKEND,KEY=VALUE or KEY=VALUE, got '{text}'")
        config.setdefault(backend, {})[key] = value
    return config


def check_backend_config(config: BackendConfig) -> None:
    """Raises for the first backend, key or value that is none"""
    for backend, settings in config.items():
        known = _settings_of(backend)
        for key, value in settings.items():
            _check_setting(backend, key, value, known)
        if backend:
            descriptors()[backend].check_settings(settings)


def describe_settings() -> str:
    """Those that there are, for a help"""
    own = (f"; of {name} also {', '.join(one.settings)}" for name, one in descriptors().items() if one.settings)
    return "".join([", ".join(_COMMON), *own])


def settings_of(config: BackendConfig, backend: str) -> Mapping[str, str]:
    """What holds for one backend: what is said of it wins over what is said of all"""
    return {**config.get(ALL_BACKENDS, {}), **config.get(backend, {})}


def _settings_of(backend: str) -> Mapping[str, Setting]:
    if backend == ALL_BACKENDS:
        return _COMMON
    if why := refusal(backend):
        raise Unsupported(f"backend config: {why}")
    if backend not in descriptors():
        raise Unsupported(
            f"backend config: backend '{backend}' is not supported by this version, {hint(backend, descriptors())}"
        )
    return {**_COMMON, **descriptors()[backend].settings}


def _check_setting(backend: str, key: str, value: str, known: Mapping[str, Setting]) -> None:
    named = f"{backend},{key}" if backend else key
    if key not in known:
        raise Unsupported(f"backend config '{named}' is not supported by this version, {hint(key, known)}")
    if not known[key].is_right(value):
        raise ConfigInvalid(f"backend config '{named}': expected {known[key].expected}, got '{value}'")
