"""How much of the machine a long model gets: served throughput of convnet ÷ raw ONNX Runtime on as many threads.

    python -m benchmarks.throughput [--quick] [--seconds S] [--pairs N] [--save]

Nothing is pinned. c = 2 x instances connections, one row per request, one thread per instance. Each pair runs the
server and the raw runtime one after the other, in alternating order; the median of the pairs' ratios is reported.

Where the instances fill every core, client and HTTP take their share of the same cores: `attainable` is what would be
left if a request cost the server as little as it costs the echo server.
"""

from __future__ import annotations

import os
import statistics
from dataclasses import asdict, dataclass

from benchmarks import floor, loadgen, machine
from benchmarks.floor import Floor
from benchmarks.loadgen import ClosedLoop, ClosedLoopRun, Echo
from benchmarks.models import MODELS, Entry, write_repository
from benchmarks.options import BUILD, Options, Plan, parse
from benchmarks.outcome import Check, Outcome, Table, progress, run_part
from benchmarks.payload import binary_request
from benchmarks.server import Server

__all__ = ["PART", "measure"]

PART = "throughput"
MODEL = "convnet"
INSTANCES = (1, 2)
TARGET = 0.96
SATURATED = 0.97
HEADER_BYTES = 150
NOTE = (
    "`floor cores` near the number of instances shows that the raw runtime saturates its threads. `attainable`: the "
    "ratio if HTTP cost the server no more than it costs the echo server, the client on the same cores included."
)


@dataclass(frozen=True)
class Pair:
    instances: int
    server: ClosedLoop
    floor: Floor

    @property
    def ratio(self) -> float:
        return self.server.per_second / self.floor.runs_per_second


def measure(options: Options) -> Outcome:
    plan = options.plan(full=Plan(20, 5), quick=Plan(4, 1))
    expected = len(INSTANCES) * plan.repeats * 2 * (plan.seconds + 1.5)
    progress(PART, f"{plan.repeats} pairs of {plan.seconds:g} s for {INSTANCES} instances, about {expected:.0f} s")
    loadgen.build()
    transfer_us = _transfer_us(min(3.0, plan.seconds))
    pairs = [pair for instances in INSTANCES for pair in _pairs(instances, plan)]
    by_instances = {count: [pair for pair in pairs if pair.instances == count] for count in INSTANCES}
    ratios = {count: statistics.median(pair.ratio for pair in found) for count, found in by_instances.items()}
    return Outcome(
        PART,
        "Throughput of a long model",
        f"{MODEL}, unpinned, c = 2 per instance, batch 1, intra-op 1, median of {plan.repeats} alternating pairs of "
        f"{plan.seconds:g} s",
        _table(by_instances, ratios, transfer_us),
        tuple(
            Check(
                f"{MODEL} throughput ÷ raw ONNX Runtime, {count} instance{'s' * (count > 1)}", ratio, "at least", TARGET
            )
            for count, ratio in ratios.items()
        ),
        notes=_doubts(pairs),
        figures={
            "ratios": ratios,
            "transfer_us": transfer_us,
            "pairs": [{**asdict(pair), "ratio": pair.ratio} for pair in pairs],
        },
    )


def _pairs(instances: int, plan: Plan) -> list[Pair]:
    repository = write_repository(BUILD / "repository", [Entry(MODEL, MODEL, instances=instances)])
    payload = binary_request(MODEL, MODEL)
    found = []
    with Server(repository) as server:

        def serve() -> ClosedLoop:
            return ClosedLoopRun(
                server.port, payload, connections=2 * instances, seconds=plan.seconds, pids=server.pids()
            ).result()

        def run_raw() -> Floor:
            return floor.measure(MODEL, threads=instances, rows=1, seconds=plan.seconds)

        for repeat in range(plan.repeats):
            if repeat % 2 == 0:
                served, raw = serve(), run_raw()
            else:
                raw, served = run_raw(), serve()
            found.append(Pair(instances, served, raw))
            progress(PART, f"instances {instances}, pair {repeat + 1} of {plan.repeats}: {found[-1].ratio:.3f}")
    return found


def _transfer_us(seconds: float) -> float:
    """CPU time of client and echo server for one request of this size: what HTTP itself costs."""
    answer_bytes = MODELS[MODEL].outputs[0][1] * 4 + HEADER_BYTES
    with Echo(answer_bytes) as echo:
        run = ClosedLoopRun(
            echo.port, binary_request(MODEL, MODEL), connections=2, seconds=seconds, pids=[echo.pid]
        ).result()
    return run.server_cpu_us + run.client_cpu_us


def _attainable(instances: int, pairs: list[Pair], transfer_us: float) -> float:
    cores = len(os.sched_getaffinity(0))
    run_us = statistics.median(pair.floor.cpu_us_per_run for pair in pairs)
    return min(1.0, cores / instances / (1 + transfer_us / run_us))


def _table(by_instances: dict[int, list[Pair]], ratios: dict[int, float], transfer_us: float) -> Table:
    median = statistics.median
    return Table(
        (
            "instances",
            "c",
            "served req/s",
            "raw ORT runs/s",
            "÷ raw",
            "attainable",
            "pairs",
            "p50 ms",
            "p99 ms",
            "server cores",
            "client cores",
            "floor cores",
        ),
        tuple(
            (
                str(count),
                str(2 * count),
                f"{median(pair.server.per_second for pair in pairs):.1f}",
                f"{median(pair.floor.runs_per_second for pair in pairs):.1f}",
                f"**{ratios[count]:.3f}**",
                f"{_attainable(count, pairs, transfer_us):.3f}",
                f"{min(pair.ratio for pair in pairs):.3f} to {max(pair.ratio for pair in pairs):.3f}",
                f"{median(pair.server.p50_us for pair in pairs) / 1e3:.2f}",
                f"{median(pair.server.p99_us for pair in pairs) / 1e3:.2f}",
                f"{median(pair.server.server_cores for pair in pairs):.2f}",
                f"{median(pair.server.client_cores for pair in pairs):.2f}",
                f"{median(pair.floor.cores for pair in pairs):.2f}",
            )
            for count, pairs in by_instances.items()
        ),
    )


def _doubts(pairs: list[Pair]) -> tuple[str, ...]:
    notes = [NOTE]
    if any(pair.floor.cores < SATURATED * pair.instances for pair in pairs):
        notes.append("**The floor did not saturate in every pair: something else ran on this machine.**")
    return (*notes, *machine.doubts(statistics.median(pair.server.foreign_cores for pair in pairs)))


if __name__ == "__main__":
    run_part(PART, measure, parse(__doc__))
