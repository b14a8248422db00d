"""What do clients see while processes of a service die and stand still at random?

    python -m benchmarks.chaos [--seconds S] [--seed N]

A real `bentoml serve` of two workers, under load on `/v2` and on an endpoint, for 90 s. Every 1.5 to 5 s the engine, a
worker or the keeper of the engine is killed, or stopped for 0.3 to 4 s. Every answer is checked. The same seed makes
the same choices.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.outcome import Check, Table, check_table, progress
from tests import models
from tests.e2e.bento import Bento, service_of
from tests.e2e.chaos import Chaos, Report

__all__ = ["run"]

PART = "chaos"
SECONDS = 90.0
GAP_TARGET_S = 3.0


def run(seconds: float, seed: int) -> Report:
    """Starts a service, and looks at its end that nothing is left"""
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder, "models")
        models.write_add_sub(repository)
        with Bento(service_of(Path(folder), repository)).until_ready() as bento:
            return Chaos(bento, seed, lambda step: progress(PART, step)).run(seconds)


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--seconds", type=float, default=SECONDS, metavar="S", help="how long faults are made")
    flags.add_argument("--seed", type=int, default=random.randrange(10**6), metavar="N", help="of an earlier run")
    given = flags.parse_args()
    progress(PART, f"{given.seconds:g} s, --seed {given.seed}")
    report = run(given.seconds, given.seed)
    rows = [
        (kind, str(len(gaps)), f"{statistics.median(gaps):.1f}", f"{max(gaps):.1f}")
        for kind, gaps in sorted(report.gaps_by_kind().items())
    ]
    checks = (
        Check("longest time without a good answer on a route", report.longest_gap(), "at most", GAP_TARGET_S, " s"),
        Check("wrong answers", len(report.wrong), "at most", 0),
    )
    columns = "fault", "times", "without a good answer, median s", "longest s"
    print(f"\n{Table(columns, tuple(rows)).markdown()}\n\n{check_table(checks).markdown()}\n")
    print(f"ends: {dict(sorted(report.ends.items()))}; the longest wait for an end: {report.longest_wait:.1f} s")
    print(*report.wrong, sep="\n")
    sys.exit(0 if all(check.met for check in checks) else 1)


if __name__ == "__main__":
    main()
