"""Large JSON beside small requests: does a body of 60 MB keep anybody else waiting?

    python -m benchmarks.large_bodies [--quick] [--seconds S] [--repeats N] [--save]

add_sub gets 1000 binary requests a second on 4 connections, open loop, latency from the intended send time; alone, then
while one client, which is nice to the others, sends a request of 60 MB of JSON after the other, and then while it sends
them to another server: what that costs, the machine costs, and no server can do better. Nothing is pinned.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass

from benchmarks import loadgen, machine
from benchmarks.loadgen import ClosedLoop, ClosedLoopRun, OpenLoop
from benchmarks.models import Entry, inputs, write_repository
from benchmarks.options import BUILD, Options, Plan, parse
from benchmarks.outcome import Check, Outcome, Table, progress, run_part
from benchmarks.payload import Payload, binary_request
from benchmarks.server import Server

__all__ = ["PART", "measure"]

PART = "large_bodies"
RATE = 1000
SMALL_CONNECTIONS = 4
LARGE_BYTES = 60_000_000
WARMUP_S = 2.0
RATIO_TARGET = 2.0
SHARED_TARGET = 1.5
NOTE = (
    "The client that sends the large bodies and the kernel that carries them share the cores with everything else: "
    "`client late` is what that costs the small client before it has sent anything."
)


@dataclass(frozen=True)
class Round:
    alone: OpenLoop
    elsewhere: OpenLoop
    beside: OpenLoop
    large: ClosedLoop

    @property
    def ratio(self) -> float:
        return self.beside.latency_us.p99 / self.alone.latency_us.p99

    @property
    def shared(self) -> float:
        """What remains when the cores are as busy, and with the same work."""
        return self.beside.latency_us.p99 / self.elsewhere.latency_us.p99


def measure(options: Options) -> Outcome:
    plan = options.plan(full=Plan(15, 5), quick=Plan(5, 1))
    progress(PART, f"{plan.repeats} repeats, about {plan.repeats * 3 * (plan.seconds + WARMUP_S + 1):.0f} s")
    loadgen.build()
    entries = [Entry("add_sub", "add_sub"), Entry("wide", "wide")]
    large = _json_request()
    rounds = []
    repository = write_repository(BUILD / "repository", entries)
    with Server(repository) as server, Server(repository) as other:
        for repeat in range(plan.repeats):
            rounds.append(_round(server, other, large, plan.seconds))
            told = f"ratio {rounds[-1].ratio:.2f}, to another server's {rounds[-1].shared:.2f}"
            progress(PART, f"repeat {repeat + 1} of {plan.repeats}: {told}")
    ratio = statistics.median(one.ratio for one in rounds)
    shared = statistics.median(one.shared for one in rounds)
    return Outcome(
        PART,
        "Small requests beside large JSON",
        f"add_sub open loop at {RATE}/s on {SMALL_CONNECTIONS} connections, beside {len(large.body) / 1e6:.0f} MB of "
        f"JSON in flight, unpinned, median of {plan.repeats} times {plan.seconds:g} s",
        _table(rounds),
        (
            Check("add_sub at 1000/s: p99 beside 60 MB of JSON ÷ p99 alone", ratio, "at most", RATIO_TARGET),
            Check("the same ÷ p99 while another server gets the 60 MB", shared, "at most", SHARED_TARGET),
        ),
        notes=(NOTE, *machine.doubts(statistics.median(one.large.foreign_cores for one in rounds))),
        figures={
            "ratio": ratio,
            "shared": shared,
            "rounds": [{**asdict(one), "ratio": one.ratio, "shared": one.shared} for one in rounds],
        },
    )


def _json_request() -> Payload:
    row = json.dumps(inputs("wide", rows=1)["INPUT"][0].tolist())
    rows = LARGE_BYTES // len(row)
    shape = [rows, len(json.loads(row))]
    head = f'{{"inputs":[{{"name":"INPUT","datatype":"FP32","shape":{json.dumps(shape)},"data":['
    return Payload("/v2/models/wide/infer", {}, f"{head}{','.join([row] * rows)}]}}]}}".encode())


def _round(server: Server, other: Server, large: Payload, seconds: float) -> Round:
    payload = binary_request("add_sub", "add_sub")

    def small() -> OpenLoop:
        return loadgen.open_loop(
            server.port, payload, rate=RATE, connections=SMALL_CONNECTIONS, seconds=seconds, warmup=WARMUP_S / 2
        )

    def beside(loaded: Server) -> tuple[OpenLoop, ClosedLoop]:
        running = ClosedLoopRun(
            loaded.port,
            large,
            connections=1,
            seconds=seconds + WARMUP_S,
            warmup=WARMUP_S / 2,
            pids=loaded.pids(),
            gives_way=True,
        )
        return small(), running.result()

    alone = small()
    elsewhere, _ = beside(other)
    return Round(alone, elsewhere, *beside(server))


def _table(rounds: list[Round]) -> Table:
    median = statistics.median

    def row(name: str, runs: list[OpenLoop], large: str) -> tuple[str, ...]:
        return (
            name,
            f"{median(run.latency_us.p50 for run in runs) / 1e3:.3f}",
            f"**{median(run.latency_us.p99 for run in runs) / 1e3:.3f}**",
            f"{median(run.latency_us.p999 for run in runs) / 1e3:.3f}",
            f"{median(run.service_us.p99 for run in runs) / 1e3:.3f}",
            f"{median(run.client_late_us.p99 for run in runs) / 1e3:.3f}",
            large,
        )

    each = median(one.large.p50_us for one in rounds) / 1e3
    return Table(
        ("", "p50 ms", "p99 ms", "p99.9 ms", "p99 from send ms", "client late p99 ms", "ms per 60 MB"),
        (
            row("alone", [one.alone for one in rounds], ""),
            row("another server gets 60 MB of JSON", [one.elsewhere for one in rounds], ""),
            row("beside 60 MB of JSON", [one.beside for one in rounds], f"{each:.0f}"),
        ),
    )


if __name__ == "__main__":
    run_part(PART, measure, parse(__doc__))
