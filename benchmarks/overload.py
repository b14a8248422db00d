"""Ten times more than a model can do: what is still answered, how soon the rest is refused, what it costs in memory.

    python -m benchmarks.overload [--quick] [--seconds S] [--save]

convnet with a queue of 32, unpinned, one instance for each core. First its capacity, closed loop at c = 32; then ten
times that, open loop, for S seconds. `attainable`: what would be left of the cores for the model if a request that
arrives cost the server no more than it costs the echo server, and the client on the same cores what it costs there.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import asdict
from types import TracebackType
from typing import Self

from benchmarks import floor, loadgen, machine, processes, report
from benchmarks.loadgen import ClosedLoop, ClosedLoopRun, Echo, Overload
from benchmarks.models import MODELS, Entry, write_repository
from benchmarks.options import BUILD, RESULTS, Options, Plan, parse
from benchmarks.outcome import Check, Outcome, Table, progress, run_part
from benchmarks.payload import Payload, binary_request
from benchmarks.server import Server

__all__ = ["PART", "Memory", "measure"]

PART = "overload"
MODEL = "convnet"
TIMES = 10
QUEUE = 32
CLOSED = 32
CONNECTIONS = 128
WARMUP_S = 1.0
BESIDE_S = 10.0
LOOK_S = 0.1
HEADER_BYTES = 150
SENT_ENOUGH = 0.99
GOODPUT_TARGET = 0.9
RECOVERY_TARGET = 1.2
NOTE = (
    "Client and server share all cores. Latencies count from the moment when the first byte was sent: a refusal may be "
    "there before the last one."
)


class Memory:
    """`with Memory(pid) as memory:` looks at the resident memory of a process every tenth of a second."""

    def __init__(self, pid: int) -> None:
        self.samples: list[tuple[float, float]] = []
        self._pid = pid
        self._started = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def now_s(self) -> float:
        return time.monotonic() - self._started

    @property
    def peak_mb(self) -> float:
        return max(mb for _, mb in self.samples)

    def _look(self) -> None:
        while True:
            self.samples.append((round(self.now_s(), 2), processes.rss_mb(self._pid)))
            if self._stop.wait(LOOK_S):
                break


def measure(options: Options) -> Outcome:
    plan = options.plan(full=Plan(60, 1), quick=Plan(6, 1))
    beside = min(BESIDE_S, plan.seconds)
    instances = len(os.sched_getaffinity(0))
    progress(PART, f"{plan.seconds:g} s of load, about {plan.seconds + 5 * (beside + WARMUP_S):.0f} s in all")
    loadgen.build()
    payload = binary_request(MODEL, MODEL)
    raw = floor.measure(MODEL, threads=instances, rows=1, seconds=beside)
    transfer_us = _transfer_us(payload, beside)
    batching = f"dynamic_batching {{ default_queue_policy {{ max_queue_size: {QUEUE} }} }}"
    entry = Entry(MODEL, MODEL, instances=instances, batching=batching)
    with Server(write_repository(BUILD / "repository", [entry])) as server:

        def closed(connections: int) -> ClosedLoop:
            return ClosedLoopRun(
                server.port, payload, connections=connections, seconds=beside, warmup=WARMUP_S, pids=server.pids()
            ).result()

        capacity = closed(CLOSED)
        before = closed(1)
        rate = TIMES * capacity.per_second
        progress(PART, f"capacity {capacity.per_second:.0f}/s, now {rate:.0f}/s on {CONNECTIONS} connections")
        with Memory(server.pid) as memory:
            loaded_from = memory.now_s()
            load = loadgen.overload(
                server.port, payload, rate=rate, connections=CONNECTIONS, seconds=plan.seconds, warmup=WARMUP_S
            )
            loaded_to = memory.now_s()
            after = closed(1)  # its warm-up is the second in which all has to be as before
    attained = (instances * 1e6 - load.sent_per_second * transfer_us) / raw.cpu_us_per_run
    attainable = max(0.0, min(1.0, attained / capacity.per_second))
    goodput = load.good_per_second / capacity.per_second
    recovery = after.p50_us / before.p50_us
    grown = memory.peak_mb - memory.samples[0][1]
    most_grown = 2 * CONNECTIONS * len(payload.body) / 1e6
    return Outcome(
        PART,
        "Ten times the capacity",
        f"{MODEL}, {instances} instances, a queue of {QUEUE}, unpinned; open loop at {rate:.0f}/s on {CONNECTIONS} "
        f"connections for {plan.seconds:g} s, bodies of {len(payload.body) / 1e3:.0f} KB",
        _table(capacity, load, (goodput, attainable), memory),
        (
            Check("goodput under ten times the load ÷ closed loop at c = 32", goodput, "at least", GOODPUT_TARGET),
            Check("answers that are neither a result nor a 503 with Retry-After", load.errors, "at most", 0),
            Check("requests without an answer", load.unanswered, "at most", 0),
            Check("resident memory at its peak, MB above that before", grown, "at most", round(most_grown)),
            Check("p50 at c = 1 from a second after the load ÷ before it", recovery, "at most", RECOVERY_TARGET),
        ),
        notes=_notes(load, rate, before.foreign_cores),
        figures={
            "goodput": goodput,
            "attainable": attainable,
            "transfer_us": transfer_us,
            "floor": asdict(raw),
            "closed": asdict(capacity),
            "before": asdict(before),
            "load": asdict(load),
            "after": asdict(after),
            "memory": {"samples": memory.samples, "loaded": (loaded_from, loaded_to)},
        },
    )


def _transfer_us(payload: Payload, seconds: float) -> float:
    """CPU time of client and echo server for one request of this size."""
    with Echo(MODELS[MODEL].outputs[0][1] * 4 + HEADER_BYTES) as echo:
        run = ClosedLoopRun(echo.port, payload, connections=2, seconds=min(3.0, seconds), pids=[echo.pid]).result()
    return run.server_cpu_us + run.client_cpu_us


def _table(capacity: ClosedLoop, load: Overload, shares: tuple[float, float], memory: Memory) -> Table:
    results, refusals = load.result_us, load.refusal_us
    goodput, attainable = shares
    first, last = memory.samples[0][1], memory.samples[-1][1]
    return Table(
        (
            "closed loop/s",
            "sent/s",
            "results/s",
            "÷ closed loop",
            "attainable",
            "results",
            "refused",
            "errors",
            "result p50, p99 ms",
            "refused p50, p99 ms",
            "RSS before, peak, after MB",
        ),
        (
            (
                f"{capacity.per_second:.0f}",
                f"{load.sent_per_second:.0f}",
                f"{load.good_per_second:.0f}",
                f"**{goodput:.3f}**",
                f"{attainable:.3f}",
                str(load.results),
                str(load.refusals),
                str(load.errors),
                f"{results.p50 / 1e3:.1f}, {results.p99 / 1e3:.1f}",
                f"{refusals.p50 / 1e3:.1f}, {refusals.p99 / 1e3:.1f}",
                f"{first:.0f}, {memory.peak_mb:.0f}, {last:.0f}",
            ),
        ),
    )


def _notes(load: Overload, rate: float, foreign_cores: float) -> tuple[str, ...]:
    notes = [NOTE]
    if load.first_error:
        notes.append(f"**The first error: {load.first_error}**")
    share = load.sent_per_second / rate
    if share < SENT_ENOUGH:
        notes.append(f"The client, for want of cores or connections, sent {share:.0%} of what was asked of it.")
    return (*notes, *machine.doubts(foreign_cores))


def main() -> None:
    options = parse(__doc__)
    draw = report.load_plot("draw_overload")  # before minutes are spent on measuring
    outcome = run_part(PART, measure, options)
    draw({PART: outcome}, (RESULTS if options.save else BUILD) / "overload.png")


if __name__ == "__main__":
    main()
