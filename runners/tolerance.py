"""How far the answers of an exported model may be from the original's"""

from dataclasses import dataclass

__all__ = ["Tolerance"]


@dataclass(frozen=True)
class Tolerance:
    """How far a number may be from the original's: absolute + relative × |original|"""

    absolute: float = 1e-4
    relative: float = 1e-3
