"""Server CPU time per request: server and client share core 0, so the figure repeats on a noisy machine.

    python -m benchmarks.http_cost [--quick] [--seconds S] [--repeats N] [--save]

Closed loop, c connections. Beside the server, in the same run: an echo server that answers as many bytes, and raw ONNX
Runtime at batch sizes 1, 8 and 32. All repeats are interleaved; medians are reported.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from dataclasses import asdict, dataclass

from benchmarks import floor, loadgen, machine, processes
from benchmarks.loadgen import ClosedLoop, ClosedLoopRun, Echo
from benchmarks.models import Entry, write_repository
from benchmarks.options import BUILD, Options, Plan, parse
from benchmarks.outcome import Check, Outcome, Table, progress, run_part
from benchmarks.payload import binary_request
from benchmarks.server import Server

__all__ = ["PART", "measure"]

PART = "http_cost"
CORE = 0
CONNECTIONS = {"add_sub": (1, 8, 32), "mlp": (1, 8, 32), "convnet": (1, 8)}
CPU_TARGETS = {("add_sub", 1): 2.6, ("add_sub", 32): 2.2, ("mlp", 1): 6.5, ("mlp", 32): 4.5}
P50_TARGETS = {("add_sub", 1): 1.8}
LAUNCH_S = 0.15
NOTE = (
    "`÷ echo`: the same request sent to the echo server, which answers as many bytes. `raw ORT`: ONNX Runtime alone on "
    "the same core, CPU time of one run of c rows, divided by c (Python's call adds about 1 µs to a run)."
)


@dataclass(frozen=True)
class Pair:
    """The server and its echo, measured one after the other."""

    model: str
    connections: int
    server: ClosedLoop
    echo: ClosedLoop
    mean_batch: float
    floor_us_per_request: float


@dataclass(frozen=True)
class Point:
    """The medians over the repeats."""

    model: str
    connections: int
    cpu_us: float
    cpu_ratio: float
    p50_us: float
    p50_ratio: float
    p99_us: float
    per_second: float
    mean_batch: float
    echo_cpu_us: float
    echo_p50_us: float
    echo_p99_us: float
    floor_us: float


def measure(options: Options) -> Outcome:
    plan = options.plan(full=Plan(4, 5), quick=Plan(1, 1))
    warmup = min(1.0, plan.seconds / 3)
    steps = [(model, c) for model, levels in CONNECTIONS.items() for c in levels]
    step_s = 2 * (plan.seconds + warmup + LAUNCH_S) + min(1.0, plan.seconds / 2) + 0.8
    progress(PART, f"{plan.repeats} repeats of {len(steps)} steps, about {plan.repeats * len(steps) * step_s:.0f} s")
    loadgen.build()
    repository = write_repository(BUILD / "repository", [Entry(model, model) for model in CONNECTIONS])
    pairs: list[Pair] = []
    with ExitStack() as stack:
        server = stack.enter_context(Server(repository))
        processes.pin(server.pid, CORE)
        payloads = {model: binary_request(model, model) for model in CONNECTIONS}
        echoes = {model: stack.enter_context(Echo(len(server.answer(payload)))) for model, payload in payloads.items()}
        for model, payload in payloads.items():
            processes.pin(echoes[model].pid, CORE)
            ClosedLoopRun(server.port, payload, connections=8, seconds=min(2.0, plan.seconds), warmup=0).result()
        for repeat in range(plan.repeats):
            progress(PART, f"repeat {repeat + 1} of {plan.repeats}")
            for model, connections in steps if repeat % 2 == 0 else reversed(steps):
                payload, echo = payloads[model], echoes[model]
                before = server.counts(model)
                served = ClosedLoopRun(
                    server.port,
                    payload,
                    connections=connections,
                    seconds=plan.seconds,
                    warmup=warmup,
                    pids=server.pids(),
                    core=CORE,
                ).result()
                after = server.counts(model)
                echoed = ClosedLoopRun(
                    echo.port,
                    payload,
                    connections=connections,
                    seconds=plan.seconds,
                    warmup=warmup,
                    pids=[echo.pid],
                    core=CORE,
                ).result()
                raw = floor.measure(model, threads=1, rows=connections, seconds=min(1.0, plan.seconds / 2), core=CORE)
                pairs.append(
                    Pair(
                        model,
                        connections,
                        served,
                        echoed,
                        mean_batch=(after[0] - before[0]) / max(1, after[1] - before[1]),
                        floor_us_per_request=raw.cpu_us_per_run / connections,
                    )
                )
    points = [_median(model, c, [p for p in pairs if (p.model, p.connections) == (model, c)]) for model, c in steps]
    return Outcome(
        PART,
        "Server CPU per request over HTTP",
        f"server and client on core {CORE}, closed loop, median of {plan.repeats} repeats of {plan.seconds:g} s",
        _table(points),
        _checks(points),
        notes=(NOTE, *machine.doubts(statistics.median(pair.server.foreign_cores for pair in pairs))),
        figures={"points": [asdict(point) for point in points], "pairs": [asdict(pair) for pair in pairs]},
    )


def _median(model: str, connections: int, pairs: list[Pair]) -> Point:
    median = statistics.median
    return Point(
        model,
        connections,
        cpu_us=median(pair.server.server_cpu_us for pair in pairs),
        cpu_ratio=median(pair.server.server_cpu_us / pair.echo.server_cpu_us for pair in pairs),
        p50_us=median(pair.server.p50_us for pair in pairs),
        p50_ratio=median(pair.server.p50_us / pair.echo.p50_us for pair in pairs),
        p99_us=median(pair.server.p99_us for pair in pairs),
        per_second=median(pair.server.per_second for pair in pairs),
        mean_batch=median(pair.mean_batch for pair in pairs),
        echo_cpu_us=median(pair.echo.server_cpu_us for pair in pairs),
        echo_p50_us=median(pair.echo.p50_us for pair in pairs),
        echo_p99_us=median(pair.echo.p99_us for pair in pairs),
        floor_us=median(pair.floor_us_per_request for pair in pairs),
    )


def _table(points: list[Point]) -> Table:
    return Table(
        (
            "model",
            "c",
            "CPU µs",
            "echo CPU µs",
            "÷ echo",
            "raw ORT µs",
            "p50 µs",
            "÷ echo's",
            "p99 µs",
            "req/s",
            "mean batch",
        ),
        tuple(
            (
                point.model,
                str(point.connections),
                f"{point.cpu_us:.1f}",
                f"{point.echo_cpu_us:.1f}",
                f"**{point.cpu_ratio:.2f}**",
                f"{point.floor_us:.1f}",
                f"{point.p50_us:.0f}",
                f"{point.p50_ratio:.2f}",
                f"{point.p99_us:.0f}",
                f"{point.per_second:,.0f}",
                f"{point.mean_batch:.1f}",
            )
            for point in points
        ),
    )


def _checks(points: list[Point]) -> tuple[Check, ...]:
    found = {(point.model, point.connections): point for point in points}
    cpu = [
        Check(f"{model} HTTP, server CPU ÷ echo, c = {c}", found[model, c].cpu_ratio, "at most", target)
        for (model, c), target in CPU_TARGETS.items()
    ]
    p50 = [
        Check(f"{model} HTTP, p50 ÷ echo's, c = {c}", found[model, c].p50_ratio, "at most", target)
        for (model, c), target in P50_TARGETS.items()
    ]
    return (*cpu, *p50)


if __name__ == "__main__":
    run_part(PART, measure, parse(__doc__))
