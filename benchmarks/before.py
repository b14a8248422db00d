"""Server CPU time per request of this checkout ÷ that of another one: whether a change has made it dearer.

    python -m benchmarks.before CHECKOUT [--quick] [--seconds S] [--repeats N] [--save]

CHECKOUT is the other one, where `make setup` was run. Both servers are up at the same time. Short windows of one and of
the other follow each other, on the same core as their client, and each pair gives a ratio. Their median repeats within
some percent on a machine where single windows differ by fifteen.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import loadgen, machine, processes
from benchmarks.loadgen import ClosedLoopRun
from benchmarks.models import Entry, write_repository
from benchmarks.options import BUILD, Options, Plan, parser
from benchmarks.outcome import Outcome, Table, progress, run_part
from benchmarks.payload import Payload, binary_request, grpc_request
from benchmarks.server import Server

__all__ = ["PART", "measure"]

PART = "before"
CORE = 0
MODELS = ("add_sub", "mlp")
LEVELS = (1, 8, 32)
WARMUP_S = 0.1
LAUNCH_S = 0.15
MARGIN = 0.05


@dataclass(frozen=True)
class Step:
    protocol: str
    model: str
    connections: int
    streams: int = 0
    """Of one connection, over gRPC"""

    def payload(self) -> Payload:
        make = binary_request if self.protocol == "HTTP" else grpc_request
        return make(self.model, self.model)

    def port(self, server: Server) -> int:
        return server.port if self.protocol == "HTTP" else server.grpc_port


STEPS = [Step("HTTP", model, c) for model in MODELS for c in LEVELS]
STEPS += [Step("gRPC", model, c, streams=1) for model in MODELS for c in LEVELS]
STEPS += [Step("gRPC", "add_sub", 1, streams=32)]


@dataclass(frozen=True)
class Pair:
    """One window of each, and what else ran meanwhile."""

    step: Step
    here_us: float
    there_us: float
    foreign_cores: float


def measure(checkout: Path, options: Options) -> Outcome:
    plan = options.plan(full=Plan(0.7, 15), quick=Plan(0.4, 3))
    step_s = 2 * (plan.seconds + WARMUP_S + LAUNCH_S)
    progress(PART, f"{plan.repeats} pairs of {len(STEPS)} steps, about {plan.repeats * len(STEPS) * step_s:.0f} s")
    loadgen.build()
    repository = write_repository(BUILD / "repository", [Entry(model, model) for model in MODELS])
    pairs: list[Pair] = []
    with ExitStack() as stack:
        here = stack.enter_context(Server(repository))
        there = stack.enter_context(Server(repository, checkout=checkout))
        for server in (here, there):
            processes.pin(server.pid, CORE)
        payloads = {step: step.payload() for step in STEPS}
        for repeat in range(plan.repeats):
            progress(PART, f"pair {repeat + 1} of {plan.repeats}")
            for step in STEPS if repeat % 2 == 0 else reversed(STEPS):
                # whoever is first has a cold cache
                order = (here, there) if repeat % 2 == 0 else (there, here)
                runs = {server: _run(server, step, payloads[step], plan.seconds) for server in order}
                foreign = max(run.foreign_cores for run in runs.values())
                pairs.append(Pair(step, runs[here].server_cpu_us, runs[there].server_cpu_us, foreign))
    return Outcome(
        PART,
        "Server CPU per request ÷ that of another checkout",
        f"servers and client on core {CORE}, closed loop, {plan.repeats} pairs of {plan.seconds:g} s",
        Table(
            ("protocol", "model", "c", "other µs", "this µs", "median of ratios", "half of them within"),
            tuple(_row(step, [pair for pair in pairs if pair.step == step]) for step in STEPS),
        ),
        notes=machine.doubts(statistics.median(pair.foreign_cores for pair in pairs)),
        figures={"pairs": [asdict(pair) for pair in pairs]},
    )


def _run(server: Server, step: Step, payload: Payload, seconds: float) -> loadgen.ClosedLoop:
    return ClosedLoopRun(
        step.port(server),
        payload,
        connections=step.connections,
        streams=step.streams,
        seconds=seconds,
        warmup=WARMUP_S,
        pids=server.pids(),
        core=CORE,
    ).result()


def _row(step: Step, pairs: list[Pair]) -> tuple[str, ...]:
    ratios = [pair.here_us / pair.there_us for pair in pairs]
    low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
    there, here = (statistics.median(times) for times in zip(*((p.there_us, p.here_us) for p in pairs), strict=True))
    told = f"**{median:.3f}**" if abs(median - 1) > MARGIN else f"{median:.3f}"
    return (
        step.protocol,
        step.model,
        f"{step.connections} × {step.streams}" if step.streams else str(step.connections),
        f"{there:.2f}",
        f"{here:.2f}",
        told,
        f"{low:.3f} to {high:.3f}",
    )


def main() -> None:
    flags = parser(__doc__)
    flags.add_argument("checkout", type=Path, help="the other checkout, set up")
    given = flags.parse_args()
    checkout: Path = given.checkout.resolve()
    if not (checkout / ".venv/bin/python").is_file():
        flags.error(f"there is no {checkout / '.venv'}: run `make setup` there")
    run_part(
        PART, lambda options: measure(checkout, options), Options(given.quick, given.seconds, given.repeats, given.save)
    )


if __name__ == "__main__":
    main()
