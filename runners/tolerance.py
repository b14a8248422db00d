"""How far the answers of one form of a model may be, and are, from those of another"""

from dataclasses import dataclass

__all__ = ["Difference", "Tolerance"]


@dataclass(frozen=True)
class Tolerance:
    """How far a number may be from the original's: absolute + relative × |original|"""

    absolute: float = 1e-4
    relative: float = 1e-3


@dataclass(frozen=True)
class Difference:
    """The largest difference of an output from the original's; `relative` to the largest number of the original"""

    absolute: float
    relative: float

    def __or__(self, other: "Difference") -> "Difference":
        """The largest of both"""
        return Difference(max(self.absolute, other.absolute), max(self.relative, other.relative))
