"""What the BentoML service costs, beside the same API written in other ways (benchmarks/peers): CPU of all processes.

    python -m benchmarks.service [--quick] [--seconds S] [--repeats N] [--save]

For the CPU figures every service has one API worker and shares core 0 with the client; they are measured one after the
other in each repeat; ratios are taken within a repeat, medians over the repeats. Latency, errors and start-up are those
of services as they come, on all cores. 60 s long, each of them; 8 s with --quick.
"""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

from benchmarks import loadgen, machine, processes, report
from benchmarks.loadgen import ClosedLoop, ClosedLoopRun
from benchmarks.models import Entry, inputs, write_repository
from benchmarks.options import BUILD, RESULTS, Options, Plan, parse
from benchmarks.outcome import Check, Outcome, Table, progress, run_part
from benchmarks.payload import Payload, binary_request, grpc_request
from benchmarks.server import HOST, Program, free_port

__all__ = ["PART", "measure"]

PART = "service"
CORE = 0
CONNECTIONS = 16
MANY_CONNECTIONS = 64
LONG_SECONDS, LONG_SECONDS_QUICK = 60.0, 8.0
STARTS = 3
ONE_WORKER = {"Predictor": {"workers": 1}}
ALL_SWITCHED_OFF = {
    "metrics": {"enabled": False},
    "logging": {"access": {"enabled": False}},
    "tracing": {"excluded_urls": ".*"},
    # By default the proxy of `bentoml.depends` gives up its session after 100 calls, and with it those under way.
    "Runner": {"runner_connection": {"max_requests": 10**9, "max_age": 1e6}},
}
AS_IT_COMES, ALL_OFF = "as it comes", "all off"
CONFIGURATIONS: dict[str, dict[str, Any]] = {AS_IT_COMES: ONE_WORKER, ALL_OFF: {**ONE_WORKER, **ALL_SWITCHED_OFF}}
NOTES = (
    "CPU: of all processes of a service, supervisor and engine or runner included, per request. One API worker each.",
    "All services find uvloop and httptools, which BentoML alone would not install.",
    "All off: metrics, access log and tracing off, and `runner_connection` of BentoML's runner without limit.",
    "Failed: answers other than 200, and connections closed under a request. Their CPU counts like that of answers.",
)


@dataclass(frozen=True)
class Way:
    module: str
    label: str


OURS = Way("kushi_service", "Kushi: runners.bento")
RUNNER = Way("bento_runner", "BentoML: depends, batchable")
INSIDE = Way("bento_inside", "BentoML: model in the handler")
NOTHING = Way("bento_nothing", "BentoML: no model")
OURS_WITHOUT = Way("kushi_nothing", "Kushi: no model")
FASTAPI = Way("fastapi_app", "FastAPI: batcher by hand")
WAYS = (RUNNER, INSIDE, NOTHING, FASTAPI, OURS_WITHOUT, OURS)
BY_CONFIGURATION = {AS_IT_COMES: WAYS, ALL_OFF: (RUNNER, INSIDE, NOTHING, OURS_WITHOUT, OURS)}


@dataclass(frozen=True)
class Round:
    """One repeat"""

    runs: dict[str, dict[str, ClosedLoop]]
    """By configuration and way"""
    relayed: ClosedLoop
    direct: ClosedLoop
    """Over HTTP, on the Bento's port and on the engine's own"""
    handed: ClosedLoop
    grpc: ClosedLoop
    """The same over gRPC"""


@dataclass(frozen=True)
class AsTheyCome:
    """On all cores, with the workers of the default"""

    seconds: float
    tails: dict[str, ClosedLoop]
    crowds: dict[str, ClosedLoop]
    starts: list[float]


def measure(options: Options) -> Outcome:
    plan = options.plan(full=Plan(5, 5), quick=Plan(2, 1))
    long = LONG_SECONDS_QUICK if options.quick else LONG_SECONDS
    services = sum(map(len, BY_CONFIGURATION.values()))
    seconds = plan.repeats * (services * (plan.seconds + 10) + 2 * plan.seconds) + 4 * (long + 10) + 8 * STARTS
    progress(PART, f"{plan.repeats} repeats of {services} services, then 4 long runs, about {seconds:.0f} s")
    loadgen.build()
    write_repository(BUILD / "repository", [Entry("mlp", "mlp")])
    rounds = []
    for repeat in range(plan.repeats):
        progress(PART, f"repeat {repeat + 1} of {plan.repeats}")
        rounds.append(_round(plan.seconds))
    progress(PART, "latency and errors")
    tails = {way.label: _long(way, CONNECTIONS, long) for way in (OURS, INSIDE)}
    crowds = {way.label: _long(way, MANY_CONNECTIONS, long) for way in (OURS, RUNNER)}
    progress(PART, "starts")
    starts = [_start_seconds() for _ in range(STARTS)]
    return _outcome(plan, rounds, AsTheyCome(long, tails, crowds, starts))


def _round(seconds: float) -> Round:
    runs: dict[str, dict[str, ClosedLoop]] = {}
    protocol: list[ClosedLoop] = []
    for configuration, ways in BY_CONFIGURATION.items():
        runs[configuration] = {}
        for way in ways:
            own_ports = free_port(), free_port()
            with _program(way, CONFIGURATIONS[configuration], own_ports) as program:
                processes.pin(program.pid, CORE)
                runs[configuration][way.label] = _pinned(program, program.port, _predict(), seconds)
                if way is OURS and configuration == AS_IT_COMES:
                    http, grpc = binary_request("mlp", "mlp"), grpc_request("mlp", "mlp")
                    protocol += [_pinned(program, port, http, seconds) for port in (program.port, own_ports[0])]
                    protocol += [
                        _pinned(program, port, grpc, seconds, streams=1) for port in (program.port, own_ports[1])
                    ]
    return Round(runs, *protocol)


def _pinned(program: Program, port: int, payload: Payload, seconds: float, *, streams: int = 0) -> ClosedLoop:
    # Batches are small and Python is cold at first: both settle within a second.
    return ClosedLoopRun(
        port,
        payload,
        connections=CONNECTIONS,
        streams=streams,
        seconds=seconds,
        warmup=1.5,
        pids=program.pids(),
        core=CORE,
    ).result(despite_errors=True)


def _long(way: Way, connections: int, seconds: float) -> ClosedLoop:
    with _program(way) as program:
        run = ClosedLoopRun(program.port, _predict(), connections=connections, seconds=seconds, pids=program.pids())
        return run.result(despite_errors=True)


def _start_seconds() -> float:
    with _program(OURS) as program:
        return program.ready_after_s


def _predict() -> Payload:
    numbers = [round(value, 6) for value in inputs("mlp", rows=1)["INPUT"][0].tolist()]
    return Payload("/predict", {"Content-Type": "application/json"}, json.dumps({"x": numbers}).encode())


def _program(way: Way, services: dict[str, Any] | None = None, engine_ports: tuple[int, int] | None = None) -> Program:
    """As its users start it, with BentoML's settings of services; the engine opens ports where they are given"""
    port = free_port()
    module = f"benchmarks.peers.{way.module}"
    where = ["--host", HOST, "--port", str(port)]
    if way is FASTAPI:
        command = ["uvicorn", f"{module}:app", *where, "--loop", "uvloop", "--http", "httptools"]
        return Program([sys.executable, "-m", *command], port, "/readyz")
    environment = {"BENTOML_DO_NOT_TRACK": "1"}
    if services is not None:
        environment["BENTOML_CONFIG_OVERRIDES"] = json.dumps({"services": services})
    for protocol, engine_port in zip(("HTTP", "GRPC"), engine_ports or (), strict=False):
        environment |= {f"KUSHI_{protocol}_ADDRESS": HOST, f"KUSHI_{protocol}_PORT": str(engine_port)}
    command = ["bentoml", "serve", f"{module}:Predictor", *where]
    # Each look costs the service a millisecond, which it would rather start in.
    return Program([sys.executable, "-m", *command], port, "/readyz", environment, look_s=0.02)


def _outcome(plan: Plan, rounds: list[Round], as_they_come: AsTheyCome) -> Outcome:
    long, tails, crowds, starts = vars(as_they_come).values()
    rows: list[tuple[str, ...]] = []
    points = []
    for configuration, ways in BY_CONFIGURATION.items():
        for way in ways:
            runs = [one.runs[configuration][way.label] for one in rounds]
            ratio = _ratio(rounds, configuration, way, RUNNER)
            cpu, p50, p99 = (
                statistics.median(getattr(run, name) for run in runs) for name in ("server_cpu_us", "p50_us", "p99_us")
            )
            failed = sum(run.failed for run in runs) / sum(run.requests for run in runs)
            cells = (f"{cpu:.0f}", f"**{ratio:.2f}**", f"{p50 / 1e3:.1f}", f"{p99 / 1e3:.1f}", f"{failed:.1%}")
            rows.append((configuration, way.label, *cells))
            point = {"configuration": configuration, "way": way.label, "cpu_us": cpu, "ratio": ratio}
            points.append({**point, "p50_us": p50, "p99_us": p99, "failed": failed})
    ready = statistics.median(starts)
    relay = statistics.median(one.relayed.server_cpu_us / one.direct.server_cpu_us for one in rounds)
    one_port = statistics.median(one.handed.server_cpu_us / one.grpc.server_cpu_us for one in rounds)
    alone = _ratio(rounds, AS_IT_COMES, OURS, NOTHING)
    tail = tails[OURS.label].p99_us / tails[INSIDE.label].p99_us
    window = f"{long:g} s"
    checks = (
        Check(f"CPU ÷ {RUNNER.label}, as it comes", _ratio(rounds, AS_IT_COMES, OURS, RUNNER), "at most", 0.42),
        Check(f"CPU ÷ {RUNNER.label}, all off", _ratio(rounds, ALL_OFF, OURS, RUNNER), "at most", 0.36),
        Check(f"CPU ÷ {NOTHING.label}, as it comes", alone, "at most", 1.3),
        Check("/v2/models/mlp/infer, binary: CPU ÷ the engine's own port", relay, "at most", 2.5),
        Check(f"p99 of {window}, c = {CONNECTIONS}, ÷ {INSIDE.label}", tail, "at most", 0.3),
        Check(f"failed in {window}, c = {MANY_CONNECTIONS}", crowds[OURS.label].failed, "at most", 0),
        Check("gRPC on the Bento's port, CPU ÷ on the engine's", one_port, "at most", 1.1),
        Check("bentoml serve: exec to the first 200 on /readyz", ready, "at most", 6, " s"),
    )
    notes = [*NOTES]
    for what, c, runs_by_label in (("p99", CONNECTIONS, tails), ("failed", MANY_CONNECTIONS, crowds)):
        for label, run in runs_by_label.items():
            found = f"p50 {run.p50_us / 1e3:.1f} ms, p99 {run.p99_us / 1e3:.1f} ms, {run.per_second:.0f}/s"
            notes.append(f"For {what}, c = {c}, {window}: {label}: {found}, {run.failed} of {run.requests} failed.")
    direct = statistics.median(one.direct.server_cpu_us for one in rounds)
    relayed = statistics.median(one.relayed.server_cpu_us for one in rounds)
    handed = statistics.median(one.handed.server_cpu_us for one in rounds)
    grpc = statistics.median(one.grpc.server_cpu_us for one in rounds)
    notes.append(
        f"The protocol over HTTP: {relayed:.0f} µs on the Bento's port, {direct:.0f} µs on the engine's; over gRPC "
        f"{handed:.1f} and {grpc:.1f} µs."
    )
    own = _ratio(rounds, AS_IT_COMES, OURS, OURS_WITHOUT)
    notes.append(f"The call's share: {own:.2f} times the same service of ours without it, as it comes.")
    foreign = statistics.median(run.foreign_cores for one in rounds for run in one.runs[AS_IT_COMES].values())
    return Outcome(
        PART,
        "The BentoML service, beside the same API written in other ways",
        f"mlp, JSON in and out, c = {CONNECTIONS}; services and client on core {CORE}, closed loop, median of "
        f"{plan.repeats} repeats of {plan.seconds:g} s; BentoML {metadata.version('bentoml')}",
        Table(("configuration", "service", "CPU µs", f"÷ {RUNNER.label}", "p50 ms", "p99 ms", "failed"), tuple(rows)),
        checks,
        notes=(*notes, *machine.doubts(foreign)),
        figures={
            "points": points,
            "rounds": [asdict(one) for one in rounds],
            "tails": {label: asdict(run) for label, run in tails.items()},
            "crowds": {label: asdict(run) for label, run in crowds.items()},
            "starts_s": starts,
        },
    )


def _ratio(rounds: list[Round], configuration: str, way: Way, peer: Way) -> float:
    runs = [one.runs[configuration] for one in rounds]
    return statistics.median(run[way.label].server_cpu_us / run[peer.label].server_cpu_us for run in runs)


def main() -> None:
    options = parse(__doc__)
    draw = report.load_plot("draw_service")  # before minutes are spent on measuring
    outcome = run_part(PART, measure, options)
    draw({PART: outcome}, (RESULTS if options.save else BUILD) / "service.png")


if __name__ == "__main__":
    main()
