"""What may stand in the place of a class of TensorRT"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorrt_bindings as real

__all__ = ["in_place_of"]


def in_place_of(original: Any) -> Callable[[type], type]:
    """A class with a part of the members of `original`"""

    def check(made: type) -> type:
        strange = {name for name in vars(made) if not name.startswith("_")} - set(dir(original))
        if strange:
            names = ", ".join(sorted(strange))
            raise AttributeError(f"{original.__name__} of TensorRT {real.__version__} has no {names}")
        return made

    return check
