"""A small model beside a busy large one: does anybody wait for somebody else's work?

    python -m benchmarks.interference [--quick] [--seconds S] [--repeats N] [--save]

add_sub gets 1000 requests a second on 4 connections, open loop, latency from the intended send time, while convnet
(2 instances) runs closed loop at c = 8. Nothing is pinned. Each repeat also runs either of them alone.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass

from benchmarks import loadgen, machine
from benchmarks.loadgen import ClosedLoop, ClosedLoopRun, OpenLoop
from benchmarks.models import Entry, write_repository
from benchmarks.options import BUILD, Options, Plan, parse
from benchmarks.outcome import Check, Outcome, Table, progress, run_part
from benchmarks.payload import binary_request
from benchmarks.server import Server

__all__ = ["PART", "measure"]

PART = "interference"
RATE = 1000
SMALL_CONNECTIONS = 4
LARGE_CONNECTIONS = 8
LARGE_INSTANCES = 2
WARMUP_S = 2.0
SMALL_ALONE_S = 5.0
P99_TARGET_MS = 2.0
KEPT_TARGET = 0.93
NOTE = (
    "`from send` leaves out what a request waited in the client; `client late` is how late the client itself woke up "
    "for a due request: where all cores are busy that is the kernel's scheduling, and it counts in the latency."
)


@dataclass(frozen=True)
class Round:
    small_alone: OpenLoop
    large_alone: ClosedLoop
    small: OpenLoop
    large: ClosedLoop

    @property
    def kept(self) -> float:
        return self.large.per_second / self.large_alone.per_second


def measure(options: Options) -> Outcome:
    plan = options.plan(full=Plan(30, 5), quick=Plan(5, 1))
    expected = plan.repeats * (2 * (plan.seconds + WARMUP_S) + min(SMALL_ALONE_S, plan.seconds) + 1)
    progress(PART, f"{plan.repeats} repeats of {plan.seconds:g} s, about {expected:.0f} s")
    loadgen.build()
    entries = [Entry("add_sub", "add_sub"), Entry("convnet", "convnet", instances=LARGE_INSTANCES)]
    with Server(write_repository(BUILD / "repository", entries)) as server:
        rounds = []
        for repeat in range(plan.repeats):
            rounds.append(_round(server, plan.seconds, large_first=repeat % 2 == 0))
            progress(
                PART,
                f"repeat {repeat + 1} of {plan.repeats}: add_sub p99 {rounds[-1].small.latency_us.p99 / 1e3:.2f} ms, "
                f"convnet keeps {rounds[-1].kept:.3f}",
            )
    p99_ms = statistics.median(one.small.latency_us.p99 for one in rounds) / 1e3
    kept = statistics.median(one.kept for one in rounds)
    return Outcome(
        PART,
        "A small model beside a busy large one",
        f"add_sub open loop at {RATE}/s on {SMALL_CONNECTIONS} connections, convnet ({LARGE_INSTANCES} instances) "
        f"closed loop at c = {LARGE_CONNECTIONS}, unpinned, median of {plan.repeats} times {plan.seconds:g} s",
        _table(rounds),
        (
            Check(
                "add_sub at 1000/s beside convnet: p99 from the intended time", p99_ms, "at most", P99_TARGET_MS, " ms"
            ),
            Check("convnet beside add_sub ÷ convnet alone", kept, "at least", KEPT_TARGET),
        ),
        notes=(NOTE, *machine.doubts(statistics.median(one.large_alone.foreign_cores for one in rounds))),
        figures={"p99_ms": p99_ms, "kept": kept, "rounds": [{**asdict(one), "kept": one.kept} for one in rounds]},
    )


def _round(server: Server, seconds: float, *, large_first: bool) -> Round:
    small_payload, large_payload = binary_request("add_sub", "add_sub"), binary_request("convnet", "convnet")

    def large() -> ClosedLoopRun:
        return ClosedLoopRun(
            server.port,
            large_payload,
            connections=LARGE_CONNECTIONS,
            seconds=seconds,
            warmup=WARMUP_S,
            pids=server.pids(),
        )

    def small(seconds: float, warmup: float) -> OpenLoop:
        return loadgen.open_loop(
            server.port, small_payload, rate=RATE, connections=SMALL_CONNECTIONS, seconds=seconds, warmup=warmup
        )

    def together() -> tuple[OpenLoop, ClosedLoop]:
        running = large()
        return small(seconds, WARMUP_S), running.result()

    small_alone = small(min(SMALL_ALONE_S, seconds), 0.5)
    if large_first:
        large_alone = large().result()
        small_beside, large_beside = together()
    else:
        small_beside, large_beside = together()
        large_alone = large().result()
    return Round(small_alone, large_alone, small_beside, large_beside)


def _table(rounds: list[Round]) -> Table:
    median = statistics.median

    def small(name: str, runs: list[OpenLoop]) -> tuple[str, ...]:
        return (
            name,
            f"{RATE}",
            f"{median(run.latency_us.p50 for run in runs) / 1e3:.3f}",
            f"**{median(run.latency_us.p99 for run in runs) / 1e3:.3f}**",
            f"{median(run.latency_us.p999 for run in runs) / 1e3:.3f}",
            f"{median(run.service_us.p99 for run in runs) / 1e3:.3f}",
            f"{median(run.client_late_us.p99 for run in runs) / 1e3:.3f}",
        )

    def large(name: str, runs: list[ClosedLoop]) -> tuple[str, ...]:
        return (
            name,
            f"**{median(run.per_second for run in runs):.1f}**",
            f"{median(run.p50_us for run in runs) / 1e3:.1f}",
            f"{median(run.p99_us for run in runs) / 1e3:.1f}",
            "",
            "",
            "",
        )

    return Table(
        ("", "req/s", "p50 ms", "p99 ms", "p99.9 ms", "p99 from send ms", "client late p99 ms"),
        (
            small("add_sub alone", [one.small_alone for one in rounds]),
            small("add_sub beside convnet", [one.small for one in rounds]),
            large("convnet alone", [one.large_alone for one in rounds]),
            large("convnet beside add_sub", [one.large for one in rounds]),
        ),
    )


if __name__ == "__main__":
    run_part(PART, measure, parse(__doc__))
