"""From exec to the first 200 on /v2/health/ready, files in the page cache, a small repository.

python -m benchmarks.startup [--quick] [--repeats N] [--save]
"""

from __future__ import annotations

import re
import statistics
from dataclasses import asdict, dataclass

from benchmarks.models import Entry, write_repository
from benchmarks.options import BUILD, Options, Plan, parse
from benchmarks.outcome import Check, Outcome, Table, progress, run_part
from benchmarks.server import Server

__all__ = ["PART", "measure"]

PART = "startup"
READY_TARGET_S = 1.5
AFTER_IMPORTS_TARGET_S = 0.3
LOG_LINE = re.compile(r"ready in ([\d.]+) s \(([\d.]+) s after imports\)")


@dataclass(frozen=True)
class Start:
    exec_to_ready_s: float
    logged_s: float
    after_imports_s: float


def measure(options: Options) -> Outcome:
    plan = options.plan(full=Plan(0, 5), quick=Plan(0, 3))
    progress(PART, f"{plan.repeats + 1} starts, about {2 * (plan.repeats + 1)} s")
    repository = write_repository(BUILD / "repository", [Entry("add_sub", "add_sub"), Entry("mlp", "mlp")])
    _start_once(Server(repository))  # fills the page cache
    starts = [_start_once(Server(repository)) for _ in range(plan.repeats)]
    ready = statistics.median(start.exec_to_ready_s for start in starts)
    after_imports = statistics.median(start.after_imports_s for start in starts)
    return Outcome(
        PART,
        "Start-up",
        f"two small models, warm page cache, median of {plan.repeats}",
        Table(
            ("", "median s", "fastest s", "slowest s"),
            (
                _row("exec to the first 200 on ready", [start.exec_to_ready_s for start in starts]),
                _row("the server's own log: ready in", [start.logged_s for start in starts]),
                _row("the server's own log: after imports", [start.after_imports_s for start in starts]),
            ),
        ),
        (
            Check("exec to the first 200 on ready", ready, "at most", READY_TARGET_S, " s"),
            Check("start-up after the imports", after_imports, "at most", AFTER_IMPORTS_TARGET_S, " s"),
        ),
        figures={"starts": [asdict(start) for start in starts]},
    )


def _start_once(server: Server) -> Start:
    with server:
        ready_after_s = server.ready_after_s
    found = LOG_LINE.search(server.log())
    if found is None:
        raise SystemExit("the start-up log has no line 'ready in X s (Y s after imports)'")
    return Start(ready_after_s, float(found[1]), float(found[2]))


def _row(what: str, seconds: list[float]) -> tuple[str, ...]:
    return what, f"**{statistics.median(seconds):.3f}**", f"{min(seconds):.3f}", f"{max(seconds):.3f}"


if __name__ == "__main__":
    run_part(PART, measure, parse(__doc__))
