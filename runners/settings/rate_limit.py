"""The rate limiter: resources that models share"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..errors import ConfigInvalid
from ..integers import INT32_MAX, integer
from .definition import Group, setting, stated
from .kinds import Choice, Several

__all__ = ["RateLimitOptions"]

_LOG = logging.getLogger(__name__)

Key = str | tuple[str, int]
Resources = Mapping[str, int] | Mapping[Key, int]
"""How often there is a resource on each device, by its name, or on one, by its name and the number of the device"""


class _Resources(Several):
    """NAME:COUNT[:DEVICE] in a flag; of a resource that is stated twice the lower count holds, as in tritonserver"""

    def __init__(self) -> None:
        super().__init__("NAME:COUNT[:DEVICE]")
        self.expected = f"{self.placeholder}, a name, a count and perhaps the number of a device"

    @property
    def expected_object(self) -> str:
        return "{NAME: COUNT} or {(NAME, DEVICE): COUNT} with whole numbers from 0"

    def read(self, given: object, source: str) -> Resources:
        counts: dict[Key, int] = {}
        for text in self.texts(given, source):
            name, *numbers = text.split(":")
            key: Key
            match [integer(number, 0, INT32_MAX) for number in numbers]:
                case [int(count)] if name:
                    key = name
                case [int(count), int(device)] if name:
                    key = (name, device)
                case _:
                    raise ConfigInvalid(f"{source}: expected {self.expected}, got '{text}'")
            counts[key] = min(count, counts.get(key, count))
        return counts

    def check(self, value: object, path: str) -> None:
        if not isinstance(value, Mapping) or not all(_is_key(key) and _is_count(count) for key, count in value.items()):
            raise ConfigInvalid(f"{path} is {value!r}, expected {self.expected_object}")


@dataclass(frozen=True, kw_only=True)
class RateLimitOptions(Group):
    """Which models wait for each other."""

    title = "rate limiter"

    mode: Literal["off", "execution_count"] = setting(
        "rate-limit",
        Choice("off", "execution_count"),
        "Whether instances wait for the resources of their rate_limiter: never, or by their priorities and how often "
        "they have executed.",
        default="off",
    )
    resources: Resources = field(
        default_factory=dict,
        metadata=stated(
            "rate-limit-resource",
            _Resources(),
            "How often there is a resource, on each device or on one. Where none is stated, each is there as often as "
            "an instance needs it at most.",
        ),
    )

    def warn(self) -> None:
        """Says what is stated and has no effect; for each engine that starts"""
        if self.mode == "off" and self.resources:
            names = ", ".join(dict.fromkeys(f"'{key if isinstance(key, str) else key[0]}'" for key in self.resources))
            _LOG.warning("--rate-limit-resource of %s has no effect without --rate-limit=execution_count", names)

    @property
    def native(self) -> list[dict[str, object]] | None:
        """What the native core takes"""
        if self.mode == "off":
            return None
        named = (((key, None) if isinstance(key, str) else key, count) for key, count in self.resources.items())
        return [{"name": name, "device": device, "count": count} for (name, device), count in named]


def _is_key(key: object) -> bool:
    match key:
        case (str(name), device):
            return bool(name) and _is_count(device)
        case str(name):
            return bool(name)
    return False


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT32_MAX
