"""What the engine leaves of a GPU, beside PyTorch in a loop in the same run.

    python -m benchmarks.torch_gpu [--quick] [--seconds S] [--repeats N] [--save]

convnet, a ResNet-18 of half the width, with batches of 1 to 64 rows: threads call `engine.infer`, two instances
execute. The loop is one thread: into pinned memory, to the GPU, through the network, back, wait. Then a small network:
32 coroutines ask for one row each, and the loop has all 32 in one batch. Last a trace: how long did a kernel run?
Ratios are taken within a repeat, medians over the repeats. Without a GPU it ends with 2.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

import runners
from benchmarks import machine
from benchmarks.gpu_trace import Busy, busy
from benchmarks.options import BUILD, Options, Plan, parser
from benchmarks.outcome import Check, Outcome, Table, progress, run_part
from benchmarks.rates import Rate, rate_of, threads
from benchmarks.torch_models import CONVNET, SMALL, Network, Served, made, write

__all__ = ["PART", "measure"]

PART = "torch_gpu"
SIZES = (1, 2, 4, 8, 16, 32, 64)
CALLERS, INSTANCES, COROUTINES = 4, 2, 32
TARGET, SMALL_TARGET, BUSY_TARGET = 0.95, 0.8, 0.9
TOLERANCE = 1e-2
GRAPHS = (
    'parameters { key: "kushi.cuda_graphs" value { string_value: "1,2,4,8,16,32" } }\n'
    'parameters { key: "kushi.cuda_graphs_padding" value { string_value: "true" } }\n'
)
NOTES = (
    f"÷ raw: rows per second of {CALLERS} threads and {INSTANCES} instances, by those of the loop. p99: of one caller.",
    (
        f"small: {COROUTINES} coroutines of this process ask for a row each, the loop has {COROUTINES} in one batch: "
        "what the coroutines cost counts against the engine."
    ),
)
Array = np.ndarray[Any, np.dtype[np.float32]]


Rates = dict[str, dict[str, Rate]]
"""By what was asked for, and by the way it was asked"""


def measure(options: Options, device: torch.device) -> Outcome:
    plan = options.plan(full=Plan(3, 5), quick=Plan(0.5, 1))
    # a processor takes seconds for a large batch
    sizes = SIZES if device.type == "cuda" else SIZES[:2]
    small = [Served("small", SMALL, INSTANCES, COROUTINES, "dynamic_batching { }\n")]
    if device.type == "cuda":
        small.append(Served("small, graphs", SMALL, INSTANCES, COROUTINES, "dynamic_batching { }\n" + GRAPHS))
    served = (Served("convnet", CONVNET, INSTANCES, sizes[-1]), *small)
    repository = write(BUILD / PART, served, "KIND_CPU" if device.type == "cpu" else "KIND_GPU")
    progress(PART, "models load")
    with runners.Engine(repository) as engine:
        loops = {network: Loop(network, device) for network in (CONVNET, SMALL)}
        progress(PART, "answers are compared")
        for entry in served:
            _compare(engine, entry, loops[entry.network])
        rounds = []
        for repeat in range(plan.repeats):
            progress(PART, f"repeat {repeat + 1} of {plan.repeats}")
            rounds.append(_round(engine, sizes, small, loops, plan.seconds, backwards=bool(repeat % 2)))
        seen = _trace(engine, plan.seconds) if device.type == "cuda" else {}
    return _outcome(plan, device, small, rounds, seen)


class Loop:
    """PyTorch with nothing around it, written with care: pinned memory, copies that do not wait, one wait at the end"""

    def __init__(self, network: Network, device: torch.device) -> None:
        self._device = device
        self._network = made(network).to(device)
        self._pinned = torch.zeros(max(SIZES), *network.dims, pin_memory=device.type == "cuda")
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def run(self, rows: Array) -> Array:
        with torch.inference_mode(), torch.cuda.stream(self._stream):
            staged = self._pinned[: len(rows)].copy_(torch.from_numpy(rows))
            result = self._network(staged.to(self._device, non_blocking=True)).to("cpu", non_blocking=True)
            if self._stream is not None:
                self._stream.synchronize()
        array: Array = result.numpy()
        return array


def _round(
    engine: runners.Engine,
    sizes: Sequence[int],
    small: Sequence[Served],
    loops: dict[Network, Loop],
    seconds: float,
    *,
    backwards: bool,
) -> Rates:
    """Each pair one after the other, in turning order"""
    found = {}
    for size in sizes:
        given = rows(CONVNET, size)

        def ask(given: Array = given) -> object:
            return engine.infer("convnet", given)

        def loop(given: Array = given) -> object:
            return loops[CONVNET].run(given)

        ways: dict[str, Callable[[], Rate]] = {
            "engine": lambda ask=ask, size=size: threads(ask, size, CALLERS, seconds),  # type: ignore[misc]
            "one": lambda ask=ask, size=size: threads(ask, size, 1, seconds),  # type: ignore[misc]
            "raw": lambda loop=loop, size=size: threads(loop, size, 1, seconds),  # type: ignore[misc]
        }
        found[str(size)] = {way: ways[way]() for way in (reversed(ways) if backwards else ways)}
    given = rows(SMALL, COROUTINES)
    raw = threads(lambda: loops[SMALL].run(given), COROUTINES, 1, seconds)
    for entry in small:
        found[entry.name] = {"engine": asyncio.run(_coroutines(engine, entry.name, seconds)), "raw": raw}
    return found


def rows(network: Network, count: int) -> Array:
    return np.random.default_rng(count).random((count, *network.dims), dtype=np.float32)


def _compare(engine: runners.Engine, entry: Served, loop: Loop) -> None:
    """The same network, or nothing is measured."""
    for count in sorted({1, 2, entry.max_batch_size}):
        given = rows(entry.network, count)
        found, expected = engine.infer(entry.name, given)["OUTPUT__0"], loop.run(given)
        np.testing.assert_allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE)


async def _coroutines(engine: runners.Engine, model: str, seconds: float) -> Rate:
    opens = time.perf_counter() + min(0.5, seconds / 3)
    closes = opens + seconds
    latencies: list[float] = []
    given = rows(SMALL, 1)

    async def work() -> None:
        while (begun := time.perf_counter()) < closes:
            await engine.async_infer(model, given)
            ended = time.perf_counter()
            if opens <= ended < closes:
                latencies.append(ended - begun)

    await asyncio.gather(*(work() for _ in range(COROUTINES)))
    return rate_of(latencies, 1, seconds)


def _trace(engine: runners.Engine, seconds: float) -> Busy:
    """Of a window in which convnet is asked for the largest batches"""
    given = rows(CONVNET, SIZES[-1])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        with profile(activities=[ProfilerActivity.CUDA]) as trace:
            threads(lambda: engine.infer("convnet", given), SIZES[-1], CALLERS, min(seconds, 2.0))
        trace.export_chrome_trace(str(path))
        return busy(json.loads(path.read_text(encoding="utf-8")))


def _outcome(plan: Plan, device: torch.device, small: Sequence[Served], rounds: Sequence[Rates], seen: Busy) -> Outcome:
    lines, checks = [], []
    for name, ways in rounds[0].items():
        alone = "one" if "one" in ways else "engine"
        ratio = statistics.median(found[name]["engine"].per_second / found[name]["raw"].per_second for found in rounds)
        engine, raw = (statistics.median(found[name][way].per_second for found in rounds) for way in ("engine", "raw"))
        p99, raw_p99 = (statistics.median(found[name][way].p99_ms for found in rounds) for way in (alone, "raw"))
        lines.append((name, f"{engine:.0f}", f"{raw:.0f}", f"**{ratio:.2f}**", f"{p99:.2f}", f"{raw_p99:.2f}"))
        is_small = any(entry.name == name for entry in small)
        label = f"{name}, c = {COROUTINES}" if is_small else f"convnet, batch {name}"
        checks.append(Check(f"{label}: rows per second ÷ raw", ratio, "at least", SMALL_TARGET if is_small else TARGET))
    if seen:
        checks.append(Check("share of the time with a kernel on the GPU", seen["kernels"], "at least", BUSY_TARGET))
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU: a look at the benchmark itself"
    return Outcome(
        PART,
        "PyTorch on a GPU",
        f"{name}, PyTorch {torch.__version__}, median of {plan.repeats} repeats of {plan.seconds:g} s",
        Table(("batch", "rows/s", "raw rows/s", "÷ raw", "p99 ms", "raw p99 ms"), tuple(lines)),
        checks=tuple(checks),
        notes=(*NOTES, *machine.doubts(0.0)),
        figures={
            "busy": dict(seen),
            "rounds": [
                {name: {way: asdict(rate) for way, rate in ways.items()} for name, ways in found.items()}
                for found in rounds
            ],
        },
    )


def main() -> None:
    flags = parser(__doc__)
    flags.add_argument(
        "--device", default="cuda:0", help="cpu: a look at the benchmark itself, whose figures say nothing"
    )
    given = flags.parse_args()
    options = Options(given.quick, given.seconds, given.repeats, given.save)
    device = torch.device(given.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print(f"benchmarks.{PART} needs a GPU, and PyTorch {torch.__version__} sees none here", file=sys.stderr)
        raise SystemExit(2)
    run_part(PART, lambda options: measure(options, device), options)


if __name__ == "__main__":
    main()
