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
    results: tuple[str, ...] = ()
    """Of pytest: without one of these files it has not run"""
    limit_s: float = 30 * 60

    @property
    def command(self) -> list[str]:
        return ["make", "--no-print-directory", self.name]


def parts_of_test() -> list[Part]:
    """Those of `make test`, as the Makefile has them"""
    found = re.search(r"^test: setup (.*?) ##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return [Part("setup"), *map(_part, found[1].split())]


def _part(name: str) -> Part:
    runs = [name, f"{name}.clock", f"{name}.alone"] if name == "test-python" else [name]
    limit_s = TIERS_LIMIT_S if len(runs) > 1 else Part.limit_s
    return Part(name, ("setup",), () if name in WITHOUT_PYTEST else tuple(runs), limit_s)


TIERS_LIMIT_S: Final = 55 * 60
"""Of the tests that run in three tiers, one behind the other: a slow machine needs more than half an hour for them"""
WITHOUT_PYTEST: Final = {"lint", "test-rust", "site"}
SLOWER: Final = (
    *(
        "test-triton",
        "test-torch",
        "test-tensorflow",
        "test-fil",
        "test-buckets",
        "test-gpu",
        "test-deploy",
        "test-clients",
        "test-browser",
        "site",
    ),
    *("test-packages", "test-containers"),
)
PARTS: Final = (Part("environments"), *parts_of_test(), *map(_part, SLOWER))
