"""What the engine leaves of a GPU to an ONNX model, beside ONNX Runtime's own Python in the same run.

    .ci/test-gpu python -m benchmarks.onnx_gpu [--quick] [--seconds S] [--repeats N] [--save]

convnet, a ResNet-18 of half the width, with batches of 1 to 64 rows: threads call `engine.infer`, two instances
execute. Beside it the same file in `onnxruntime.InferenceSession`: one session in a loop, and two threads with a
session each. Then rows of one: 32 threads ask for a row each and the engine makes batches of them, which run in sizes
of its choice, in other sizes, and as they come; beside it a session that has all 32 in one batch. Last a session of
ONNX Runtime alone: what a run costs when each has another batch size than the run before, for each way in which cuDNN
may look for its convolutions. Ratios are taken within a repeat, medians over the repeats. Without a GPU it ends with 2.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

import runners
from benchmarks import machine
from benchmarks.options import BUILD, Options, Plan, parse
from benchmarks.outcome import Check, Outcome, Table, progress, run_part
from benchmarks.rates import Rate, threads
from benchmarks.torch_models import CONVNET, made

__all__ = ["PART", "measure"]

PART = "onnx_gpu"
PROVIDER = "CUDAExecutionProvider"
SIZES = (1, 2, 4, 8, 16, 32, 64)
CALLERS, INSTANCES, ROWS_OF_ONE = 4, 2, 32
TARGET, BATCHED_TARGET = 0.95, 0.8
TOLERANCE = 1e-2
SEARCHES = ("EXHAUSTIVE", "HEURISTIC")
ANY = "any size"
BATCHED = {"": "", "fewer sizes": "1,4,16,64", ANY: "any"}
"""What `kushi.batch_sizes` says of models with dynamic batches"""
NOTES = (
    (
        f"{CALLERS} threads ask the engine, whose {INSTANCES} instances execute. raw: one session in a loop; raw, 2: "
        "two threads with a session each. ÷ raw: by the better of the two."
    ),
    f"rows of one: {ROWS_OF_ONE} threads ask for one row each, raw has {ROWS_OF_ONE} rows in one batch.",
)
Array = np.ndarray[Any, np.dtype[np.float32]]
Ways = dict[str, Rate]


class Raw:
    """ONNX Runtime as its documentation shows it, with sessions of its own"""

    def __init__(self, path: Path) -> None:
        self._sessions = [onnxruntime.InferenceSession(path, providers=[PROVIDER]) for _ in range(INSTANCES)]
        self._own = threading.local()
        self._taken = iter(())

    def begin(self) -> None:
        """Threads that come from now on take the sessions in turn"""
        self._own, self._taken = threading.local(), iter(self._sessions)

    def run(self, given: Array) -> Array:
        if not hasattr(self._own, "session"):
            self._own.session = next(self._taken)
        answer: Array = self._own.session.run(None, {"X": given})[0]
        return answer


def measure(options: Options) -> Outcome:
    plan = options.plan(full=Plan(3, 5), quick=Plan(0.5, 1))
    progress(PART, "models load")
    repository = _write(BUILD / PART)
    raw = Raw(repository / "convnet" / "1" / "model.onnx")
    with runners.Engine(repository) as engine:
        progress(PART, "answers are compared")
        for count in (1, 2, SIZES[-1]):
            raw.begin()
            given = _rows(count)
            found, expected = engine.infer("convnet", given)["Y"], raw.run(given)
            np.testing.assert_allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE)
        progress(PART, "every batch size once")
        _round(engine, raw, plan.seconds / 2, backwards=False)
        rounds = []
        for repeat in range(plan.repeats):
            progress(PART, f"repeat {repeat + 1} of {plan.repeats}")
            rounds.append(_round(engine, raw, plan.seconds, backwards=bool(repeat % 2)))
        progress(PART, "batch sizes change")
    model = repository / "convnet" / "1" / "model.onnx"
    return _outcome(plan, rounds, {search: _changing(model, search, runs=30) for search in SEARCHES})


def _round(engine: runners.Engine, raw: Raw, seconds: float, *, backwards: bool) -> dict[str, Ways]:
    """The ways one after the other, in turning order"""

    def loop(given: Array, size: int, callers: int) -> Rate:
        raw.begin()
        return threads(lambda: raw.run(given), size, callers, seconds)

    def ask(model: str, given: Array, callers: int) -> Rate:
        return threads(lambda: engine.infer(model, given), len(given), callers, seconds)

    found: dict[str, Ways] = {}
    for size in SIZES:
        given = _rows(size)
        ways: dict[str, Callable[[], Rate]] = {
            "engine": lambda given=given: ask("convnet", given, CALLERS),  # type: ignore[misc]
            "one": lambda given=given: ask("convnet", given, 1),  # type: ignore[misc]
            "raw": lambda given=given, size=size: loop(given, size, 1),  # type: ignore[misc]
            "raw, 2": lambda given=given, size=size: loop(given, size, INSTANCES),  # type: ignore[misc]
        }
        found[str(size)] = {way: ways[way]() for way in (reversed(ways) if backwards else ways)}
    same = {way: found[str(ROWS_OF_ONE)][way] for way in ("raw", "raw, 2")}
    for which in BATCHED:
        name = f"rows of one, {which}" if which else "rows of one"
        found[name] = {"engine": ask(_named(which), _rows(1), ROWS_OF_ONE), **same}
    return found


def _changing(path: Path, search: str, runs: int) -> dict[str, float]:
    """Milliseconds of a run: of a batch size that is new, the same again, two in turn, and 1 to 32 in any order"""
    session = onnxruntime.InferenceSession(path, providers=[(PROVIDER, {"cudnn_conv_algo_search": search})])
    given = {size: _rows(size) for size in range(1, ROWS_OF_ONE + 1)}

    def mean(sizes: Sequence[int]) -> float:
        begun = time.perf_counter()
        for size in sizes:
            session.run(None, {"X": given[size]})
        return (time.perf_counter() - begun) / len(sizes) * 1e3

    mean([1])
    some = np.random.default_rng(0).permutation(list(given)[:-1])
    return {
        "new": mean([int(size) for size in some]),
        "same": mean([8] * runs),
        "two in turn": mean([7, 8] * (runs // 2)),
        "any": mean([int(size) for size in np.random.default_rng(1).permutation(some)]),
    }


def _write(directory: Path) -> Path:
    """The same network several times: as its callers batch it, and with dynamic batches"""
    shutil.rmtree(directory, ignore_errors=True)
    batched = {_named(which): "dynamic_batching { }\n" + _stated(sizes) for which, sizes in BATCHED.items()}
    for name, extra in (("convnet", _stated(",".join(map(str, SIZES)))), *batched.items()):
        version = directory / name / "1"
        version.mkdir(parents=True)
        torch.onnx.export(
            made(CONVNET),
            (torch.zeros(2, *CONVNET.dims),),
            version / "model.onnx",
            input_names=["X"],
            output_names=["Y"],
            dynamic_axes={"X": {0: "rows"}, "Y": {0: "rows"}},
            dynamo=False,
        )
        (version.parent / "config.pbtxt").write_text(
            f"max_batch_size: {SIZES[-1]}\n"
            f'input {{ name: "X" data_type: TYPE_FP32 dims: {[*CONVNET.dims]} }}\n'
            'output { name: "Y" data_type: TYPE_FP32 dims: [ 1000 ] }\n'
            f"instance_group {{ kind: KIND_GPU count: {INSTANCES} }}\n{extra}",
            encoding="utf-8",
        )
    return directory


def _named(which: str) -> str:
    return f"batched {which}".strip().replace(" ", "_")


def _stated(sizes: str) -> str:
    return f'parameters {{ key: "kushi.batch_sizes" value {{ string_value: "{sizes}" }} }}\n' if sizes else ""


def _rows(count: int) -> Array:
    return np.random.default_rng(count).random((count, *CONVNET.dims), dtype=np.float32)


def _outcome(plan: Plan, rounds: Sequence[dict[str, Ways]], changing: dict[str, dict[str, float]]) -> Outcome:
    lines, checks = [], []
    for name, first in rounds[0].items():
        ratio = statistics.median(
            ways["engine"].per_second / max(ways["raw"].per_second, ways["raw, 2"].per_second)
            for ways in (found[name] for found in rounds)
        )
        speeds = [statistics.median(found[name][way].per_second for found in rounds) for way in first if way != "one"]
        alone = "one" if "one" in first else "engine"
        p99 = [statistics.median(found[name][way].p99_ms for found in rounds) for way in (alone, "raw")]
        shown = [*(f"{speed:.0f}" for speed in speeds), f"**{ratio:.2f}**", *(f"{each:.2f}" for each in p99)]
        lines.append((name, *shown))
        if name.endswith(ANY):
            continue
        target = TARGET if "one" in first else BATCHED_TARGET
        checks.append(Check(f"batch {name}: rows per second ÷ raw", ratio, "at least", target))
    return Outcome(
        PART,
        "ONNX on a GPU",
        f"{torch.cuda.get_device_name()}, ONNX Runtime {onnxruntime.__version__}, "
        f"median of {plan.repeats} repeats of {plan.seconds:g} s",
        Table(("batch", "rows/s", "raw rows/s", "raw, 2 rows/s", "÷ raw", "p99 ms", "raw p99 ms"), tuple(lines)),
        checks=tuple(checks),
        notes=(
            *NOTES,
            *(
                f"{search}, ms of a run: " + ", ".join(f"{which} {cost:.2f}" for which, cost in costs.items())
                for search, costs in changing.items()
            ),
            *machine.doubts(0.0),
        ),
        figures={
            "changing": changing,
            "rounds": [
                {name: {way: asdict(rate) for way, rate in ways.items()} for name, ways in found.items()}
                for found in rounds
            ],
        },
    )


if __name__ == "__main__":
    if PROVIDER not in onnxruntime.get_available_providers() or not torch.cuda.is_available():
        print(f"benchmarks.{PART} needs a GPU and onnxruntime-gpu beside PyTorch", file=sys.stderr)
        raise SystemExit(2)
    run_part(PART, measure, parse(__doc__))
