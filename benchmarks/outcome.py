"""What a part of the benchmarks found: rows to print, checks against the targets, raw figures to keep."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks import machine
from benchmarks.options import BUILD, RESULTS, Options

__all__ = ["Check", "Outcome", "Table", "check_table", "load", "progress", "run_part"]


@dataclass(frozen=True)
class Check:
    """One row of the list of targets."""

    what: str
    value: float
    bound: Literal["at most", "at least"]
    target: float
    unit: str = ""

    @property
    def met(self) -> bool:
        return self.value <= self.target if self.bound == "at most" else self.value >= self.target

    @property
    def measured(self) -> str:
        counted = isinstance(self.value, int)
        return f"{self.value}{self.unit}" if counted else f"{self.value:.{3 if self.value < 1 else 2}f}{self.unit}"

    @property
    def wanted(self) -> str:
        return f"{'≤' if self.bound == 'at most' else '≥'} {self.target:g}{self.unit}"

    @property
    def share(self) -> float:
        """Below 1: met. The same direction for both kinds of bound."""
        over, under = (self.value, self.target) if self.bound == "at most" else (self.target, self.value)
        if under == 0:
            return 0.0 if self.met else math.inf
        return over / under


@dataclass(frozen=True)
class Table:
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        lines = ["| " + " | ".join(self.columns) + " |", "|" + "---|" * len(self.columns)]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        return "\n".join(lines)


@dataclass(frozen=True)
class Outcome:
    part: str
    title: str
    conditions: str
    table: Table
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
    figures: dict[str, Any] = field(default_factory=dict)
    command: str = ""
    machine: dict[str, str] = field(default_factory=dict)

    def markdown(self, *, with_checks: bool = True) -> str:
        parts = [f"## {self.title}", f"`{self.command}` · {self.conditions}", self.table.markdown()]
        if self.checks and with_checks:
            parts.append(check_table(self.checks).markdown())
        parts += [f"* {note}" for note in self.notes]
        return "\n\n".join(parts)


def check_table(checks: tuple[Check, ...]) -> Table:
    return Table(
        ("target", "measured", "wanted", ""),
        tuple(
            (
                check.what,
                check.measured,
                check.wanted,
                "met" if check.met else "**missed**",
            )
            for check in checks
        ),
    )


def run_part(part: str, measure: Callable[[Options], Outcome], options: Options) -> Outcome:
    """Measures, prints, and keeps the figures beside those of the other parts."""
    conditions = machine.describe()
    started = time.monotonic()
    found = measure(options)
    command = f"python -m benchmarks.{part}{' --quick' if options.quick else ''}"
    outcome = Outcome(**{**vars(found), "command": command, "machine": conditions})
    directory = (RESULTS if options.save else BUILD) / "figures"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{part}.json").write_text(json.dumps(asdict(outcome), indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(f"\n{outcome.markdown()}\n\n{part}: {time.monotonic() - started:.0f} s\n", flush=True)
    return outcome


def load(path: Path) -> Outcome:
    kept = json.loads(path.read_text(encoding="utf-8"))
    kept["table"] = Table(tuple(kept["table"]["columns"]), tuple(tuple(row) for row in kept["table"]["rows"]))
    kept["checks"] = tuple(Check(**check) for check in kept["checks"])
    kept["notes"] = tuple(kept["notes"])
    return Outcome(**kept)


def progress(part: str, step: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {part}: {step}", file=sys.stderr, flush=True)
