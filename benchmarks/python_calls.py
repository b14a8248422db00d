"""What a call from Python costs, beside the same call through tritonclient: CPU time of all processes.

    python -m benchmarks.python_calls [--quick] [--seconds S] [--repeats N] [--save]

Caller and server share core 0. The ways are measured one after the other in each repeat; ratios are taken within a
repeat, medians over the repeats. The last rows: a Python thread that computes beside 8 calls in flight, on all cores.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from benchmarks import loadgen, machine, processes
from benchmarks.caller import Called
from benchmarks.loadgen import ClosedLoopRun
from benchmarks.models import Entry, write_repository
from benchmarks.options import BUILD, ROOT, Options, Plan, parse
from benchmarks.outcome import Check, Outcome, Table, progress, run_part
from benchmarks.payload import binary_request
from benchmarks.server import HOST, Server, free_port, wait_for_port

__all__ = ["PART", "call", "measure"]

PART = "python_calls"
CORE = 0
# 600 KB in, 40 B out: joining such inputs costs more than a batch saves, so this model runs them one by one
ENTRIES = (Entry("mlp", "mlp"), Entry("wide", "wide", max_batch_size=1, batching=None))
BURN_CALLS = 8
BURN_P50_TARGET_MS = 8.0
OTHER_CLIENT_TARGET = 1.2
NOTE = (
    "CPU: of the calling process and, where there is one, of the server's. Each peer row is the `1.00` that the rows "
    "below it are divided by: the same model, the same server, the same minute."
)


@dataclass(frozen=True)
class Way:
    way: str
    model: str
    concurrency: int
    target: float | None = None

    @property
    def label(self) -> str:
        return {
            "engine": "engine.async_infer",
            "unix": "client.async_infer, unix://",
            "unix-slots": "unix://, built in client.empty",
            "http": "client.async_infer, http://",
        }.get(self.way, self.way)


@dataclass(frozen=True)
class Group:
    """Ways that are divided by the first."""

    peer: Way
    ours: tuple[Way, ...]


GROUPS = (
    Group(
        Way("tritonclient.http.aio", "mlp", 32),
        (Way("engine", "mlp", 32, 0.09), Way("unix", "mlp", 32, 0.1), Way("http", "mlp", 32, 0.25)),
    ),
    Group(
        Way("tritonclient.http.aio", "mlp", 1),
        (Way("engine", "mlp", 1, 0.25), Way("unix", "mlp", 1, 0.28), Way("http", "mlp", 1)),
    ),
    Group(
        Way("tritonclient.http", "wide", 1),
        (Way("unix-slots", "wide", 8, 0.08), Way("unix", "wide", 8, 0.13), Way("engine", "wide", 8)),
    ),
)


@dataclass(frozen=True)
class Burn:
    """Beside a thread of the calling process that computes in Python, and beside one of another process."""

    within: Called
    beside: Called
    other_client_p50_us: dict[Literal["within", "beside"], float]


def measure(options: Options) -> Outcome:
    plan = options.plan(full=Plan(4, 5), quick=Plan(1, 1))
    warmup = min(1.0, plan.seconds / 3)
    runs = sum(1 + len(group.ours) for group in GROUPS) + 4
    seconds = plan.repeats * runs * (plan.seconds + warmup + 1.5)
    progress(PART, f"{plan.repeats} repeats of {runs} runs, about {seconds:.0f} s")
    loadgen.build()
    repository = write_repository(BUILD / "repository", list(ENTRIES))
    rounds: list[dict[Way, Called]] = []
    burns: list[Burn] = []
    for repeat in range(plan.repeats):
        progress(PART, f"repeat {repeat + 1} of {plan.repeats}")
        rounds.append(_round(repository, plan.seconds, warmup))
        burns.append(_burn(repository, plan.seconds, warmup))
    return _outcome(plan, rounds, burns)


def _round(repository: Path, seconds: float, warmup: float) -> dict[Way, Called]:
    found: dict[Way, Called] = {}
    with tempfile.TemporaryDirectory() as directory:
        local = Path(directory) / "kushi.sock"
        with Server(repository, local_socket=local) as server:
            processes.pin(server.pid, CORE)
            for group in GROUPS:
                for way in (group.peer, *group.ours):
                    target = str(local) if way.way.startswith("unix") else f"{HOST}:{server.port}"
                    command = ["--target", str(repository) if way.way == "engine" else target]
                    command += ["--core", str(CORE), "--model", way.model, "--concurrency", str(way.concurrency)]
                    if way.way != "engine":
                        command += ["--server", str(server.pid)]
                    found[way] = call(way.way, command, seconds, warmup)
    return found


def _burn(repository: Path, seconds: float, warmup: float) -> Burn:
    """An engine in a Python process that answers its own calls and those of an HTTP client in another process."""
    within, client_within = _beside_others(repository, seconds, warmup, burn=True)
    with _burning():
        beside, client_beside = _beside_others(repository, seconds, warmup, burn=False)
    return Burn(within, beside, {"within": client_within, "beside": client_beside})


def _beside_others(repository: Path, seconds: float, warmup: float, *, burn: bool) -> tuple[Called, float]:
    port = free_port()
    command = ["--target", str(repository), "--model", "mlp", "--concurrency", str(BURN_CALLS)]
    command += ["--serve-http", str(port), *(["--burn"] if burn else [])]
    with _caller("engine", command, seconds + 1, warmup) as caller:
        wait_for_port(port)
        client = ClosedLoopRun(port, binary_request("mlp", "mlp"), connections=1, seconds=seconds, warmup=warmup)
        other = client.result()
        called = _read(caller)
    return called, other.p50_us


@contextmanager
def _burning() -> Iterator[None]:
    burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        burner.kill()
        burner.wait()


def call(way: str, command: Sequence[str], seconds: float, warmup: float) -> Called:
    with _caller(way, command, seconds, warmup) as caller:
        return _read(caller)


@contextmanager
def _caller(way: str, command: Sequence[str], seconds: float, warmup: float) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-m", "benchmarks.caller", "--way", way, *command]
    words += ["--seconds", str(seconds), "--warmup", str(warmup)]
    with (BUILD / "caller.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _read(caller: subprocess.Popen[str]) -> Called:
    answer, _ = caller.communicate(timeout=120)
    if caller.returncode != os.EX_OK:
        log = (BUILD / "caller.log").read_text(encoding="utf-8")
        raise SystemExit(f"the caller failed: {log[-2000:]}")
    return Called(**json.loads(answer.splitlines()[-1]))


def _outcome(plan: Plan, rounds: list[dict[Way, Called]], burns: list[Burn]) -> Outcome:
    rows: list[tuple[str, ...]] = []
    checks: list[Check] = []
    groups = []
    for group in GROUPS:
        figures = []
        for way in (group.peer, *group.ours):
            ratio = statistics.median(found[way].cpu_us / found[group.peer].cpu_us for found in rounds)
            cpu, caller, p50, p99 = (
                statistics.median(getattr(found[way], name) for found in rounds)
                for name in ("cpu_us", "caller_cpu_us", "p50_us", "p99_us")
            )
            cells = (f"{cpu:.1f}", f"**{ratio:.3f}**", f"{caller:.1f}", f"{p50:.0f}", f"{p99:.0f}")
            rows.append((way.model, str(way.concurrency), way.label, *cells))
            measured = {"cpu_us": cpu, "caller_cpu_us": caller, "ratio": ratio, "p50_us": p50, "p99_us": p99}
            figures.append({**asdict(way), "label": way.label, **measured})
            if way.target is not None:
                what = f"{way.label}, {way.model}, c = {way.concurrency}: CPU ÷ {group.peer.way}"
                checks.append(Check(what, ratio, "at most", way.target))
        groups.append(figures)
    p50_ms = statistics.median(burn.within.p50_us for burn in burns) / 1e3
    other = statistics.median(burn.other_client_p50_us["within"] / burn.other_client_p50_us["beside"] for burn in burns)
    checks += [
        Check(f"{BURN_CALLS} calls beside a busy Python thread, p50", p50_ms, "at most", BURN_P50_TARGET_MS, " ms"),
        Check("an HTTP client of that engine, p50 ÷ beside a busy process", other, "at most", OTHER_CLIENT_TARGET),
    ]
    return Outcome(
        PART,
        "Calls from Python",
        f"caller and server on core {CORE}, closed loop on uvloop, median of {plan.repeats} repeats of "
        f"{plan.seconds:g} s",
        Table(("model", "c", "call", "CPU µs", "÷ peer", "of it caller µs", "p50 µs", "p99 µs"), tuple(rows)),
        tuple(checks),
        notes=(NOTE, *machine.doubts(0.0)),
        figures={"groups": groups, "burns": [asdict(burn) for burn in burns]},
    )


if __name__ == "__main__":
    run_part(PART, measure, parse(__doc__))
