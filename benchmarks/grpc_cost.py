"""Server CPU time per request over gRPC: server and client share core 0, so the figure repeats on a noisy machine.

    python -m benchmarks.grpc_cost [--quick] [--seconds S] [--repeats N] [--save]

Closed loop: c connections with one request each, and one connection with 32 streams. Beside the server, in the same
run: an echo server of HTTP/1.1 that answers as many bytes as our HTTP does, with as many requests at a time, and raw
ONNX Runtime. All repeats are interleaved; medians are reported.
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
from benchmarks.payload import binary_request, grpc_request
from benchmarks.server import Server

__all__ = ["PART", "measure"]

PART = "grpc_cost"
CORE = 0
LAUNCH_S = 0.15
NOTE = (
    "`÷ echo`: the cheapest answer of as many bytes over HTTP/1.1 with as many requests at a time, so that the figures "
    "stand beside those of HTTP. `net ÷ raw`: what is left of the CPU time without that of the echo server, in parts "
    "of what ONNX Runtime takes for a request at the mean batch size."
)


@dataclass(frozen=True)
class Step:
    """So many requests at a time of one model: on connections of their own, or as streams of one."""

    model: str
    connections: int
    streams: int = 1

    @property
    def at_a_time(self) -> int:
        return self.connections * self.streams

    def __str__(self) -> str:
        return f"{self.model} {self.connections} × {self.streams}"


ADD_SUB = [Step("add_sub", 1), Step("add_sub", 8), Step("add_sub", 32), Step("add_sub", 1, 32)]
MLP = Step("mlp", 1, 32)
STEPS = [*ADD_SUB, MLP]
TARGETS = dict(zip(ADD_SUB, (3.5, 3.5, 3.2, 1.6), strict=True))
MLP_TARGET = 1.8


@dataclass(frozen=True)
class Pair:
    """The server and the floors, measured one after the other."""

    step: Step
    server: ClosedLoop
    echo: ClosedLoop
    mean_batch: float
    floor_us_per_request: float


@dataclass(frozen=True)
class Point:
    """The medians over the repeats."""

    model: str
    connections: int
    streams: int
    cpu_us: float
    cpu_ratio: float
    echo_cpu_us: float
    floor_us: float
    net_ratio: float
    p50_us: float
    p99_us: float
    per_second: float
    mean_batch: float


def measure(options: Options) -> Outcome:
    plan = options.plan(full=Plan(4, 5), quick=Plan(1, 1))
    warmup = min(1.0, plan.seconds / 3)
    step_s = 2 * (plan.seconds + warmup + LAUNCH_S) + min(1.0, plan.seconds / 2) + 0.8
    progress(PART, f"{plan.repeats} repeats of {len(STEPS)} steps, about {plan.repeats * len(STEPS) * step_s:.0f} s")
    loadgen.build()
    models = sorted({step.model for step in STEPS})
    repository = write_repository(BUILD / "repository", [Entry(model, model) for model in models])
    pairs: list[Pair] = []
    with ExitStack() as stack:
        server = stack.enter_context(Server(repository))
        processes.pin(server.pid, CORE)
        over_http = {model: binary_request(model, model) for model in models}
        payloads = {model: grpc_request(model, model) for model in models}
        echoes = {model: stack.enter_context(Echo(len(server.answer(one)))) for model, one in over_http.items()}
        for model, payload in payloads.items():
            processes.pin(echoes[model].pid, CORE)
            ClosedLoopRun(server.grpc_port, payload, connections=8, streams=1, seconds=min(2.0, plan.seconds)).result()
        for repeat in range(plan.repeats):
            progress(PART, f"repeat {repeat + 1} of {plan.repeats}")
            for step in STEPS if repeat % 2 == 0 else reversed(STEPS):
                echo, before = echoes[step.model], server.counts(step.model)
                served = ClosedLoopRun(
                    server.grpc_port,
                    payloads[step.model],
                    connections=step.connections,
                    streams=step.streams,
                    seconds=plan.seconds,
                    warmup=warmup,
                    pids=server.pids(),
                    core=CORE,
                ).result()
                after = server.counts(step.model)
                echoed = ClosedLoopRun(
                    echo.port,
                    over_http[step.model],
                    connections=step.at_a_time,
                    seconds=plan.seconds,
                    warmup=warmup,
                    pids=[echo.pid],
                    core=CORE,
                ).result()
                mean_batch = (after[0] - before[0]) / max(1, after[1] - before[1])
                rows = max(1, round(mean_batch))
                raw = floor.measure(step.model, threads=1, rows=rows, seconds=min(1.0, plan.seconds / 2), core=CORE)
                pairs.append(Pair(step, served, echoed, mean_batch, raw.cpu_us_per_run / rows))
    points = {step: _median(step, [pair for pair in pairs if pair.step == step]) for step in STEPS}
    return Outcome(
        PART,
        "Server CPU per request over gRPC",
        f"server and client on core {CORE}, closed loop, median of {plan.repeats} repeats of {plan.seconds:g} s",
        _table(list(points.values())),
        _checks(points),
        notes=(NOTE, *machine.doubts(statistics.median(pair.server.foreign_cores for pair in pairs))),
        figures={"points": [asdict(point) for point in points.values()], "pairs": [asdict(pair) for pair in pairs]},
    )


def _median(step: Step, pairs: list[Pair]) -> Point:
    median = statistics.median
    return Point(
        step.model,
        step.connections,
        step.streams,
        cpu_us=median(pair.server.server_cpu_us for pair in pairs),
        cpu_ratio=median(pair.server.server_cpu_us / pair.echo.server_cpu_us for pair in pairs),
        echo_cpu_us=median(pair.echo.server_cpu_us for pair in pairs),
        floor_us=median(pair.floor_us_per_request for pair in pairs),
        net_ratio=median(
            (pair.server.server_cpu_us - pair.echo.server_cpu_us) / pair.floor_us_per_request for pair in pairs
        ),
        p50_us=median(pair.server.p50_us for pair in pairs),
        p99_us=median(pair.server.p99_us for pair in pairs),
        per_second=median(pair.server.per_second for pair in pairs),
        mean_batch=median(pair.mean_batch for pair in pairs),
    )


def _table(points: list[Point]) -> Table:
    names = "CPU µs", "echo CPU µs", "÷ echo", "raw ORT µs", "net ÷ raw", "p50 µs", "p99 µs", "req/s", "mean batch"
    return Table(
        ("model", "connections × streams", *names),
        tuple(
            (
                point.model,
                f"{point.connections} × {point.streams}",
                f"{point.cpu_us:.1f}",
                f"{point.echo_cpu_us:.1f}",
                f"**{point.cpu_ratio:.2f}**",
                f"{point.floor_us:.1f}",
                f"{point.net_ratio:.2f}",
                f"{point.p50_us:.0f}",
                f"{point.p99_us:.0f}",
                f"{point.per_second:,.0f}",
                f"{point.mean_batch:.1f}",
            )
            for point in points
        ),
    )


def _checks(points: dict[Step, Point]) -> tuple[Check, ...]:
    cpu = [
        Check(f"{step} gRPC, server CPU ÷ echo", points[step].cpu_ratio, "at most", target)
        for step, target in TARGETS.items()
    ]
    return (*cpu, Check(f"{MLP} gRPC, net of the echo ÷ raw", points[MLP].net_ratio, "at most", MLP_TARGET))


if __name__ == "__main__":
    run_part(PART, measure, parse(__doc__))
