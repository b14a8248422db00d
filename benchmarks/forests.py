"""Forests of decision trees: rows per second of CPU, beside XGBoost itself and beside a Python model that calls it.

    .venv-fil/bin/python -m benchmarks.forests [--quick] [--seconds S] [--repeats N] [--save]

A forest of 500 trees of depth 6 for 32 features. XGBoost predicts in a plain loop, on one thread, with batches of
several sizes, the best of which counts. Then requests of several sizes over HTTP, closed loop, c = 32, server and
client on core 0: to the forest, and to a Python model that joins the requests of a batch and predicts them by one call.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Final

import numpy as np
import xgboost

from benchmarks import loadgen, processes
from benchmarks.loadgen import ClosedLoopRun
from benchmarks.options import BUILD, Options, Plan, parse
from benchmarks.outcome import Check, Outcome, Table, progress, run_part
from benchmarks.payload import floats_request
from benchmarks.server import Server

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["PART", "measure"]

PART: Final = "forests"
CORE: Final = 0
CONNECTIONS: Final = 32
TREES: Final = 500
FEATURES: Final = 32
BATCHES: Final = (1, 16, 64, 256, 1024, 4096, 16384)
REQUESTS: Final = (1, 16, 256)
"""Rows of a request"""
PROGRAM: Final = """
import os

import numpy as np
import triton_python_backend_utils as pb_utils
import xgboost


class TritonPythonModel:
    def initialize(self, args):
        path = os.path.join(args["model_repository"], args["model_version"], "xgboost.json")
        self.booster = xgboost.Booster({"nthread": 1}, model_file=path)

    def execute(self, requests):
        given = [pb_utils.get_input_tensor_by_name(request, "input__0").as_numpy() for request in requests]
        predicted = self.booster.inplace_predict(np.concatenate(given) if len(given) > 1 else given[0])[:, None]
        answers, first = [], 0
        for rows in given:
            values = predicted[first : first + len(rows)]
            first += len(rows)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("output__0", values)]))
        return answers
"""
TENSORS: Final = f"""
max_batch_size: 4096
dynamic_batching {{ }}
input {{ name: "input__0" data_type: TYPE_FP32 dims: {FEATURES} }}
output {{ name: "output__0" data_type: TYPE_FP32 dims: 1 }}
"""
CONFIGURATIONS: Final[Mapping[str, str]] = {
    "fil": """
backend: "fil"
parameters { key: "model_type" value { string_value: "xgboost_json" } }
parameters { key: "is_classifier" value { string_value: "true" } }
parameters { key: "predict_proba" value { string_value: "true" } }
""",
    "python": 'backend: "python"',
}


def measure(options: Options) -> Outcome:
    plan = options.plan(Plan(3, 5), Plan(1, 1))
    warmup = min(1.0, plan.seconds / 3)
    ways = len(CONFIGURATIONS) * len(REQUESTS)
    progress(PART, f"{plan.repeats} repeats, about {plan.repeats * (ways * (plan.seconds + warmup) + 5):.0f} s")
    loadgen.build()
    rows = np.random.default_rng(0).standard_normal((BATCHES[-1], FEATURES), dtype=np.float32)
    booster = _train(rows)
    repository = _write(booster)
    loops: list[dict[int, float]] = []
    costs: dict[tuple[str, int], list[float]] = {(way, count): [] for way in CONFIGURATIONS for count in REQUESTS}
    with Server(repository) as server:
        for pid in server.pids():
            processes.pin(pid, CORE)
        payloads = {(way, count): floats_request(way, "input__0", rows[:count]) for way, count in costs}
        for repeat in range(plan.repeats):
            progress(PART, f"repeat {repeat + 1} of {plan.repeats}")
            loops.append(_loop(booster, rows, plan.seconds / len(BATCHES)))
            for key in list(costs)[:: 1 if repeat % 2 == 0 else -1]:
                run = ClosedLoopRun(
                    server.port,
                    payloads[key],
                    connections=CONNECTIONS,
                    seconds=plan.seconds,
                    warmup=warmup,
                    pids=server.pids(),
                    core=CORE,
                ).result()
                costs[key].append(key[1] / run.server_cpu_us)
    best = [max(loop.values()) for loop in loops]
    forest = {count: statistics.median(map(_ratio, costs["fil", count], best)) for count in REQUESTS}
    python = {count: statistics.median(map(_ratio, costs["fil", count], costs["python", count])) for count in REQUESTS}
    table = [
        (f"XGBoost in a loop, batches of {size}", _rate([loop[size] for loop in loops]), "", "") for size in BATCHES
    ]
    for (way, count), rates in costs.items():
        ratios = (f"{forest[count]:.2f}", f"{python[count]:.2f}") if way == "fil" else ("", "")
        table.append((f"{way}, requests of {count}", _rate(rates), *ratios))
    most = REQUESTS[-1]
    return Outcome(
        PART,
        "Forests of decision trees",
        f"{TREES} trees, c = {CONNECTIONS}, server and client on core {CORE}, median of {plan.repeats} repeats",
        Table(("", "rows per CPU second", "÷ XGBoost's best", "÷ Python model"), tuple(table)),
        (
            Check(f"requests of {most}: rows per CPU second ÷ XGBoost's best", forest[most], "at least", 0.9),
            *(Check(f"requests of {count}: ÷ Python model", python[count], "at least", 2) for count in REQUESTS),
        ),
        figures={
            "loops": loops,
            "served": [{"way": way, "rows": count, "rates": rates} for (way, count), rates in costs.items()],
        },
    )


def _ratio(one: float, other: float) -> float:
    return one / other


def _rate(rows_per_us: list[float]) -> str:
    return f"{statistics.median(rows_per_us) * 1e6:,.0f}"


def _train(rows: NDArray[np.float32]) -> xgboost.Booster:
    labels = (rows[:, :8].sum(axis=1) + np.random.default_rng(1).standard_normal(len(rows)) > 0).astype(int)
    options = {"max_depth": 6, "objective": "binary:logistic", "eta": 0.1, "nthread": 2}
    booster = xgboost.train(options, xgboost.DMatrix(rows, labels), TREES)
    booster.set_param({"nthread": 1})
    return booster


def _write(booster: xgboost.Booster) -> Path:
    repository = BUILD / "forests"
    for name, text in CONFIGURATIONS.items():
        version = repository / name / "1"
        version.mkdir(parents=True, exist_ok=True)
        booster.save_model(version / "xgboost.json")
        (repository / name / "config.pbtxt").write_text(text + TENSORS)
    (repository / "python" / "1" / "model.py").write_text(PROGRAM)
    return repository


def _loop(booster: xgboost.Booster, rows: NDArray[np.float32], seconds: float) -> dict[int, float]:
    """Rows per microsecond of CPU, by the size of the batch"""
    found = {}
    with processes.pinned(CORE):
        for size in BATCHES:
            batch, count = rows[:size], 0
            booster.inplace_predict(batch)
            begun = time.process_time()
            while time.process_time() - begun < seconds:
                booster.inplace_predict(batch)
                count += size
            found[size] = count / (time.process_time() - begun) / 1e6
    return found


if __name__ == "__main__":
    run_part(PART, measure, parse(__doc__))
