"""Sizes of batches that a parameter of config.pbtxt names"""

from ..errors import ConfigInvalid
from ..integers import integer
from .messages import ModelConfig

__all__ = ["stated_sizes"]

_MOST = 64


def stated_sizes(config: ModelConfig, key: str, *, or_else: str = "") -> tuple[int, ...]:
    """Those of the parameter, in order and each once; none where it is not there. `or_else`: for errors"""
    if key not in config.parameters:
        return ()
    text = config.parameters[key].string_value
    sizes = [integer(part.strip(), 1) for part in text.split(",")]
    known = sorted({size for size in sizes if size is not None})
    if None in sizes or len(known) > _MOST:
        raise ConfigInvalid(
            f"parameter '{key}' of model '{config.name}': expected {or_else}at most {_MOST} sizes of batches with "
            f"commas between them, got '{text}'"
        )
    return tuple(known)
