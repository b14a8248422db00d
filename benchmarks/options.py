"""The flags that every part of the benchmarks understands."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

__all__ = ["BUILD", "RESULTS", "ROOT", "Options", "Plan", "parse", "parser"]

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "benchmarks" / "build"
RESULTS = ROOT / "benchmarks" / "results"


@dataclass(frozen=True)
class Plan:
    """How long one measurement takes, and how often it is repeated."""

    seconds: float
    repeats: int


@dataclass(frozen=True)
class Options:
    quick: bool = False
    seconds: float | None = None
    repeats: int | None = None
    save: bool = False

    def plan(self, full: Plan, quick: Plan) -> Plan:
        chosen = quick if self.quick else full
        return Plan(self.seconds or chosen.seconds, self.repeats or chosen.repeats)


def parser(description: str | None) -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--quick", action="store_true", help="short windows, few repeats: a look, not a result")
    flags.add_argument("--seconds", type=float, metavar="S", help="length of one measurement")
    flags.add_argument("--repeats", "--pairs", type=int, metavar="N", help="repeats, of which the median is taken")
    flags.add_argument("--save", action="store_true", help="write the figures into benchmarks/results")
    return flags


def parse(description: str | None) -> Options:
    given = parser(description).parse_args()
    return Options(given.quick, given.seconds, given.repeats, given.save)
