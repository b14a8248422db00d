"""The parts of a whole run, each a target of the Makefile: those of `make test`, and the slower ones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["PARTS", "ROOT", "Part", "parts_of_test"]

ROOT: Final = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Part:
    """A target that is made. Where one that it needs has failed, it is left out, and the run is red all the same"""

    name: str
    needs: tuple[str, ...] = ()
    limit_s: float = 30 * 60

    @property
    def command(self) -> list[str]:
        return ["make", "--no-print-directory", self.name]


def parts_of_test() -> list[Part]:
    """Those of `make test`, as the Makefile has them"""
    found = re.search(r"^test: setup (.*?) ##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return [Part("setup"), *(Part(name, ("setup",)) for name in found[1].split())]


SLOWER: Final = (
    *("test-rebuild", "test-triton", "test-torch", "test-tensorflow", "test-gpu", "test-deploy", "test-clients"),
    *("test-packages", "test-containers"),
)
PARTS: Final = (*parts_of_test(), *(Part(name, ("setup",)) for name in SLOWER))
