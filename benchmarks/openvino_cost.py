"""What the engine adds to OpenVINO: through a runner of the core ÷ a plain loop over its C API, and over HTTP.

    python -m benchmarks.openvino_cost [--quick] [--seconds S] [--repeats N]

mlp in batches of 32 rows, asked by as many threads as there are instances, which run short batches by themselves; and
convnet, one row, with two askers for each instance. Loop and runner take turns; medians of the ratios are reported.
Then mlp over HTTP, server and client on core 0, beside the same network on ONNX Runtime and an echo server.
"""

from __future__ import annotations

import statistics
import subprocess
from contextlib import ExitStack
from dataclasses import asdict, dataclass

from benchmarks import floor, loadgen, machine, processes
from benchmarks.loadgen import ClosedLoopRun, Echo
from benchmarks.models import Entry, model_file, write_repository
from benchmarks.options import BUILD, ROOT, Options, Plan, parse
from benchmarks.outcome import Check, Outcome, Table, progress, run_part
from benchmarks.payload import binary_request
from benchmarks.server import Server
from runners.backends.openvino_wheel import openvino_library

__all__ = ["PART", "measure"]

PART = "openvino_cost"
CORE = 0
CONNECTIONS = 32
BACKENDS = ("onnxruntime", "openvino")
TARGET = 0.97


@dataclass(frozen=True)
class Looped:
    """One network in a loop, and behind a runner."""

    model: str
    instances: int
    askers: int
    rows: int
    in_turn: tuple[int, ...] = ()
    """Rows of the loop, where they are not always the same"""

    def pairs(self, plan: Plan) -> list[tuple[float, float]]:
        """Runs per second: of the loop, through the runner."""
        library = openvino_library()
        if library is None:
            raise SystemExit("openvino is not installed: pip install 'kushi[openvino]'")
        rows = ",".join(map(str, self.in_turn or (self.rows,)))
        numbers = (self.instances, self.askers, rows, plan.seconds, plan.repeats)
        program = ROOT / "native" / "target" / "release" / "examples" / "openvino_loop"
        command = [str(program), str(library), str(model_file(self.model)), *map(str, numbers)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        lines = (line.split() for line in done.stdout.splitlines())
        return [(float(loop), float(runner)) for loop, runner in lines]


LOOPS = (
    Looped("mlp", instances=1, askers=1, rows=32),
    Looped("mlp", instances=2, askers=2, rows=32),
    Looped("convnet", instances=1, askers=2, rows=1),
    Looped("convnet", instances=2, askers=4, rows=1),
)


@dataclass(frozen=True)
class Served:
    """mlp over HTTP, on one backend."""

    backend: str
    cpu_us: float
    echo_us: float
    raw_us: float
    mean_batch: float

    @property
    def net(self) -> float:
        """What is left without the network, in parts of the echo."""
        return (self.cpu_us - self.raw_us) / self.echo_us


def measure(options: Options) -> Outcome:
    plan = options.plan(full=Plan(4, 7), quick=Plan(1, 1))
    progress(PART, f"{plan.repeats} repeats, about {plan.repeats * plan.seconds * 16:.0f} s")
    command = ["cargo", "build", "--quiet", "--locked", "--release", "-p", "kushi-engine-openvino"]
    subprocess.run([*command, "--example", "openvino_loop"], cwd=ROOT / "native", check=True)
    ratios = {}
    for looped in LOOPS:
        progress(PART, f"{looped.model}, {looped.instances} instances")
        ratios[looped] = [runner / loop for loop, runner in looped.pairs(plan)]
    served = _served(plan)
    medians = {looped: statistics.median(found) for looped, found in ratios.items()}
    nets = {backend: statistics.median(one.net for one in served if one.backend == backend) for backend in BACKENDS}
    return Outcome(
        PART,
        "What the engine adds to OpenVINO",
        f"median of {plan.repeats} repeats of {plan.seconds:g} s; HTTP: server and client on core {CORE}",
        _table(ratios, served),
        (
            *(
                Check(f"{one.model}, {one.instances} instances: runner ÷ loop", medians[one], "at least", TARGET)
                for one in LOOPS
            ),
            Check(
                "mlp HTTP, c = 32, server CPU net of raw ÷ echo, in parts of ONNX Runtime's",
                nets["openvino"] / nets["onnxruntime"],
                "at most",
                1.1,
            ),
        ),
        notes=machine.doubts(0.0),
        figures={
            "loops": [{**asdict(looped), "ratios": found} for looped, found in ratios.items()],
            "served": [{**asdict(one), "net": one.net} for one in served],
        },
    )


def _served(plan: Plan) -> list[Served]:
    loadgen.build()
    entries = [Entry("mlp", backend, backend=backend) for backend in BACKENDS]
    repository = write_repository(BUILD / "repository", entries)
    found = []
    with ExitStack() as stack:
        # before it starts: for each run OpenVINO gives a thread the cores that the process had when it was loaded
        with processes.pinned(CORE):
            server = stack.enter_context(Server(repository))
        payloads = {backend: binary_request(backend, "mlp") for backend in BACKENDS}
        echo = stack.enter_context(Echo(len(server.answer(payloads["openvino"]))))
        processes.pin(echo.pid, CORE)

        def ask(port: int, backend: str, pids: list[int]) -> float:
            run = ClosedLoopRun(
                port,
                payloads[backend],
                connections=CONNECTIONS,
                seconds=plan.seconds,
                warmup=min(1.0, plan.seconds / 3),
                pids=pids,
                core=CORE,
            )
            return run.result().server_cpu_us

        for repeat in range(plan.repeats):
            progress(PART, f"HTTP, repeat {repeat + 1} of {plan.repeats}")
            for backend in BACKENDS if repeat % 2 else reversed(BACKENDS):
                before = server.counts(backend)
                cpu_us = ask(server.port, backend, server.pids())
                after = server.counts(backend)
                batch = (after[0] - before[0]) / max(1, after[1] - before[1])
                found.append(
                    Served(
                        backend,
                        cpu_us,
                        echo_us=ask(echo.port, backend, [echo.pid]),
                        raw_us=_raw_us(backend, round(batch)),
                        mean_batch=batch,
                    )
                )
    return found


def _raw_us(backend: str, rows: int) -> float:
    """Of one row, in batches of about so many: OpenVINO takes longer where their sizes change from run to run."""
    if backend == "onnxruntime":
        return floor.measure("mlp", threads=1, rows=rows, seconds=1, core=CORE).cpu_us_per_run / rows
    in_turn = (rows, max(1, rows - 1), rows + 1)
    with processes.pinned(CORE):
        ((loop, _),) = Looped("mlp", instances=1, askers=1, rows=rows, in_turn=in_turn).pairs(Plan(1, 1))
    return 1e6 / loop / rows


def _table(ratios: dict[Looped, list[float]], served: list[Served]) -> Table:
    median = statistics.median
    rows = [
        (
            f"{one.model}, {one.instances} instances, {one.rows} rows",
            f"**{median(found):.3f}**",
            f"{min(found):.3f} to {max(found):.3f}",
            "",
            "",
        )
        for one, found in ratios.items()
    ]
    for backend in BACKENDS:
        here = [one for one in served if one.backend == backend]
        rows.append(
            (
                f"mlp over HTTP on {backend}, c = {CONNECTIONS}",
                "",
                "",
                _parts(here),
                f"**{median(one.net for one in here):.2f}**",
            )
        )
    return Table(("", "runner ÷ loop", "from, to", "server CPU µs", "net of raw ÷ echo"), tuple(rows))


def _parts(served: list[Served]) -> str:
    cpu, raw, echo, batch = (
        statistics.median(values)
        for values in zip(*((one.cpu_us, one.raw_us, one.echo_us, one.mean_batch) for one in served), strict=True)
    )
    return f"{cpu:.1f} ({raw:.1f} raw, {echo:.1f} echo, batch {batch:.1f})"


if __name__ == "__main__":
    run_part(PART, measure, parse(__doc__))
