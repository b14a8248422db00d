"""Values for each GPU: GPU:VALUE in a flag, as in tritonserver, {GPU: VALUE} in an object"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from ..errors import ConfigInvalid
from ..integers import INT32_MAX, INT64_MAX, integer
from .kinds import Several

__all__ = ["Bytes", "Fraction", "PerGpu"]

_DECIMAL = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", re.ASCII)


class _Value(ABC):
    """What stands behind the number of a GPU"""

    placeholder: ClassVar[str]
    expected: ClassVar[str]

    @abstractmethod
    def parse(self, text: str) -> float | None:
        """The value that `text` states, None where it states none"""

    @abstractmethod
    def accepts(self, value: object) -> bool:
        """Whether `value` is one"""


class Bytes(_Value):
    """A number of bytes"""

    placeholder = "BYTES"
    expected = "a number of bytes"

    def parse(self, text: str) -> int | None:
        return integer(text, 0)

    def accepts(self, value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT64_MAX


class Fraction(_Value):
    """A part of a whole"""

    placeholder = "FRACTION"
    expected = "a number from 0 to 1"

    def parse(self, text: str) -> float | None:
        number = float(text) if _DECIMAL.fullmatch(text) else None
        return number if self.accepts(number) else None

    def accepts(self, value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


class PerGpu(Several):
    """Of a GPU that is stated twice, the last value holds"""

    def __init__(self, value: _Value) -> None:
        super().__init__(f"GPU:{value.placeholder}")
        self._value = value
        self.expected = f"{self.placeholder}, the number of a GPU and {value.expected}"

    @property
    def expected_object(self) -> str:
        return f"{{GPU: {self._value.placeholder}}} with numbers of GPUs, and for each {self._value.expected}"

    def read(self, given: object, source: str) -> Mapping[int, float]:
        values = {}
        for text in self.texts(given, source):
            number, _, stated = text.partition(":")
            gpu, value = integer(number, 0, INT32_MAX), self._value.parse(stated)
            if gpu is None or value is None:
                raise ConfigInvalid(f"{source}: expected {self.expected}, got '{text}'")
            values[gpu] = value
        return values

    def check(self, value: object, path: str) -> None:
        right = isinstance(value, Mapping) and all(
            isinstance(gpu, int) and not isinstance(gpu, bool) and 0 <= gpu <= INT32_MAX and self._value.accepts(one)
            for gpu, one in value.items()
        )
        if not right:
            raise ConfigInvalid(f"{path} is {value!r}, expected {self.expected_object}")
