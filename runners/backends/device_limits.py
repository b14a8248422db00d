"""What the operator of a server allows models to take of its devices, as backends see it"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ..errors import ModelUnavailable
from ..settings import DeviceOptions
from . import driver
from .pinned import PinnedBudget

__all__ = ["NO_LIMITS", "DeviceLimits"]


@dataclass(frozen=True)
class DeviceLimits:
    """One for all models of a server, and one in each process of isolated models"""

    pinned: PinnedBudget = field(default_factory=lambda: PinnedBudget(DeviceOptions().pinned_memory_pool_bytes))
    load_fractions: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    """Of a GPU by its number: how much of its memory may be in use where a model is loaded onto it"""

    def check_load(self, model: str, places: Iterable[int | None]) -> None:
        """Refuses a model one of whose GPUs is too full. Asked before it is opened, and once it is there"""
        for gpu in sorted({place for place in places if place is not None}):
            if gpu not in self.load_fractions:
                continue
            free, total = driver.memory(gpu)
            if total - free > int(total * self.load_fractions[gpu]):
                raise ModelUnavailable(
                    f"can not create model '{model}': memory limit set for GPU {gpu} has exceeded, model loading is "
                    "rejected."
                )

    def to_plain(self) -> dict[str, Any]:
        """For another process, which has a budget of its own of the same size"""
        return {"pinned": self.pinned.most_bytes, "load_fractions": [*self.load_fractions.items()]}

    @staticmethod
    def of(plain: Mapping[str, Any]) -> "DeviceLimits":
        """As it was sent"""
        return DeviceLimits(PinnedBudget(plain["pinned"]), dict(plain["load_fractions"]))


NO_LIMITS = DeviceLimits()
"""Those of a backend for which nobody has said any"""
