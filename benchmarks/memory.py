"""Weights are in memory once, however many instances: PSS with 4 instances of a 100 MB model ÷ PSS with 1.

python -m benchmarks.memory [--quick] [--save]
"""

from __future__ import annotations

from benchmarks import loadgen, processes
from benchmarks.loadgen import ClosedLoopRun
from benchmarks.models import Entry, model_file, write_repository
from benchmarks.options import BUILD, Options, Plan, parse
from benchmarks.outcome import Check, Outcome, Table, progress, run_part
from benchmarks.payload import binary_request
from benchmarks.server import Server

__all__ = ["PART", "measure"]

PART = "memory"
MODEL = "large"
INSTANCES = (1, 2, 4)
TARGET = 1.1


def measure(options: Options) -> Outcome:
    plan = options.plan(full=Plan(4, 1), quick=Plan(2, 1))
    progress(PART, f"{len(INSTANCES)} servers, about {len(INSTANCES) * (plan.seconds + 4):.0f} s")
    loadgen.build()
    found = {instances: _pss_after_use(instances, plan.seconds) for instances in INSTANCES}
    ratio = found[4] / found[1]
    return Outcome(
        PART,
        "Memory of many instances",
        f"a model of {model_file(MODEL).stat().st_size / 1e6:.0f} MB, PSS of the server after every instance ran",
        Table(
            ("instances", "PSS MB", "÷ 1 instance"),
            tuple((str(count), f"{pss:.0f}", f"{pss / found[1]:.3f}") for count, pss in found.items()),
        ),
        (Check("PSS of 4 instances of a 100 MB model ÷ 1 instance", ratio, "at most", TARGET),),
        figures={"pss_mb": found, "ratio": ratio},
    )


def _pss_after_use(instances: int, seconds: float) -> float:
    """Without batching and with more callers than instances, every instance has work at the same time."""
    entry = Entry(MODEL, MODEL, instances=instances, max_batch_size=1, batching=None)
    with Server(write_repository(BUILD / "repository", [entry])) as server:
        ClosedLoopRun(
            server.port, binary_request(MODEL, MODEL), connections=4 * instances, seconds=seconds, warmup=0.5
        ).result()
        pss = processes.pss_mb(server.pid)
    progress(PART, f"instances {instances}: {pss:.0f} MB")
    return pss


if __name__ == "__main__":
    run_part(PART, measure, parse(__doc__))
