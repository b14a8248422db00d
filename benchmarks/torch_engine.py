"""What PyTorch costs inside the engine, beside ONNX Runtime on the same network with the same weights.

    .venv-torch/bin/python -m benchmarks.torch_engine [--quick] [--seconds S] [--repeats N] [--save]

A Python program on core 0 has 32 calls of `await engine.async_infer` in flight. The kinds of model are measured one
after the other in each repeat; ratios are taken within a repeat, medians over the repeats.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper

import runners
from benchmarks import machine
from benchmarks.caller import Called
from benchmarks.models import Entry, inputs, model_file, write_repository
from benchmarks.options import BUILD, Options, Plan, parse
from benchmarks.outcome import Outcome, Table, progress, run_part
from benchmarks.python_calls import call

__all__ = ["PART", "measure"]

PART = "torch_engine"
CORE = 0
CONCURRENCY = 32
MODEL = "mlp"
ONNX, SCRIPT, EXPORTED = "ONNX", "TorchScript", "exported program"
KINDS = (ONNX, SCRIPT, EXPORTED)
NOTE = "CPU: of the whole process, so of caller, engine and model together, divided by the answers."


def measure(options: Options) -> Outcome:
    plan = options.plan(full=Plan(4, 5), quick=Plan(2, 1))
    warmup = min(1.0, plan.seconds / 3)
    progress(PART, f"{plan.repeats} repeats of {len(KINDS)} runs")
    repositories = _repositories()
    _compare(repositories)
    rounds = []
    for repeat in range(plan.repeats):
        progress(PART, f"repeat {repeat + 1} of {plan.repeats}")
        rounds.append({kind: _run(repositories[kind], plan.seconds, warmup) for kind in KINDS})
    return _outcome(plan, rounds)


def _run(repository: Path, seconds: float, warmup: float) -> Called:
    command = ["--target", str(repository), "--core", str(CORE), "--model", MODEL, "--concurrency", str(CONCURRENCY)]
    return call("engine", command, seconds, warmup)


def _repositories() -> dict[str, Path]:
    """One for each kind: the model has the same name in all of them."""
    made = {
        kind: write_repository(BUILD / PART / str(number), [Entry(MODEL, MODEL)]) for number, kind in enumerate(KINDS)
    }
    network = _network()
    for kind in (SCRIPT, EXPORTED):
        folder = made[kind] / MODEL
        (folder / "1" / "model.onnx").unlink()
        text = (folder / "config.pbtxt").read_text(encoding="utf-8")
        text = text.replace('"onnxruntime"', '"pytorch"').replace("intra_op_thread_count", "INTRA_OP_THREAD_COUNT")
        (folder / "config.pbtxt").write_text(text, encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        torch.jit.script(network).save(str(made[SCRIPT] / MODEL / "1" / "model.pt"))
    (array,) = inputs(MODEL, rows=2).values()
    rows = ({0: torch.export.Dim("rows")},)
    torch.export.save(
        torch.export.export(network, (torch.from_numpy(array),), dynamic_shapes=rows),
        str(made[EXPORTED] / MODEL / "1" / "model.pt2"),
    )
    return made


def _network() -> torch.nn.Module:
    """Linear layers with ReLU between them, their weights those of the ONNX file."""
    weights = [
        torch.from_numpy(numpy_helper.to_array(w).copy()) for w in onnx.load(model_file(MODEL)).graph.initializer
    ]
    layers: list[torch.nn.Module] = []
    for weight, bias in zip(weights[::2], weights[1::2], strict=True):
        layer = torch.nn.Linear(*weight.shape)
        layer.weight.data, layer.bias.data = weight.t().contiguous(), bias
        layers += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1]).eval()


def _compare(repositories: dict[str, Path]) -> None:
    """The same network, or nothing is measured."""
    arrays = inputs(MODEL, rows=4)
    answers: list[Any] = []
    for repository in repositories.values():
        with runners.Engine(repository) as engine:
            answers.append(engine.infer(MODEL, arrays)["OUTPUT"])
    for answer in answers[1:]:
        np.testing.assert_allclose(answer, answers[0], rtol=0, atol=1e-5)


def _outcome(plan: Plan, rounds: Sequence[dict[str, Called]]) -> Outcome:
    rows: list[tuple[str, ...]] = []
    figures = []
    for kind in KINDS:
        ratio = statistics.median(found[kind].cpu_us / found[ONNX].cpu_us for found in rounds)
        cpu, p50, p99 = (
            statistics.median(getattr(found[kind], name) for found in rounds) for name in ("cpu_us", "p50_us", "p99_us")
        )
        rows.append((kind, f"{cpu:.1f}", f"**{ratio:.2f}**", f"{p50:.0f}", f"{p99:.0f}"))
        figures.append({"kind": kind, "ratio": ratio, "runs": [asdict(found[kind]) for found in rounds]})
    return Outcome(
        PART,
        "PyTorch beside ONNX Runtime",
        f"{MODEL} through `await engine.async_infer`, c = {CONCURRENCY}, on core {CORE}, median of {plan.repeats} "
        f"repeats of {plan.seconds:g} s; PyTorch {torch.__version__}",
        Table(("model", "CPU µs", "÷ ONNX", "p50 µs", "p99 µs"), tuple(rows)),
        notes=(NOTE, *machine.doubts(0.0)),
        figures={"points": figures},
    )


if __name__ == "__main__":
    run_part(PART, measure, parse(__doc__))
