"""
A library that stands in for NVML, the one of NVIDIA's driver: it shows two GPUs, and says of them what a test wants.

The second GPU cannot tell its power. Files say what they tell, and whether a call of the driver comes back.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.stand_in_driver import NVML, make_nvml

__all__ = ["UUIDS", "StandIn"]

UUIDS: Final = ("GPU-11111111-aaaa-bbbb-cccc-000000000000", "GPU-22222222-aaaa-bbbb-cccc-000000000000")


@dataclass(frozen=True)
class StandIn:
    """One that is made in a folder of its own, which belongs into LD_LIBRARY_PATH"""

    folder: Path

    @classmethod
    def made(cls, folder: Path) -> StandIn:
        folder.mkdir(parents=True, exist_ok=True)
        made = cls(folder)
        make_nvml(folder, UUIDS)
        made.tell(0)
        made.tell(1)
        return made

    def load(self) -> None:
        """Into this process, which finds it by its name from then on, and sees the first of its GPUs"""
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"
        ctypes.CDLL(str(self.folder / NVML), mode=os.RTLD_GLOBAL)

    def tell(
        self, gpu: int, *, percent: int = 0, used_bytes: int = 0, milliwatts: int = 0, millijoules: int = 0
    ) -> None:
        """What this GPU says from now on"""
        new = self.folder / "new"
        new.write_text(f"{percent} {used_bytes} {milliwatts} {millijoules}\n")
        # whole or not at all: it is read meanwhile
        new.replace(self.folder / f"gpu{gpu}")

    def hang(self) -> None:
        """No call of the driver, first of all, or for the utilization, comes back until `go_on`"""
        (self.folder / "hangs").touch()

    def go_on(self) -> None:
        (self.folder / "hangs").unlink()

    def is_no_library(self) -> None:
        """It is found first where there is a real one, and cannot be loaded"""
        (self.folder / NVML).write_bytes(b"")

    def has_no_driver(self) -> None:
        (self.folder / "broken").touch()

    def has_no_gpu(self) -> None:
        (self.folder / "none").touch()

    @property
    def calls(self) -> int:
        """How often a GPU was asked for its utilization"""
        file = self.folder / "calls"
        return file.stat().st_size if file.exists() else 0
