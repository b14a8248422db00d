"""Whether requests of two sizes that come in turn find each other: rows per second beside the same ones sorted by size.

    python -m benchmarks.shapes [--quick] [--seconds S] [--repeats N] [--save]

128 callers in the process of the engine ask a network for rows of 2 and of 3 words: each time for one or the other as
it comes (mixed), or all for one and then all for the other (sorted). Both run in each repeat; the ratio is taken within
a repeat, the median over the repeats.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.options import BUILD, Options, Plan, parse
from benchmarks.outcome import Check, Outcome, Table, progress, run_part
from runners import Engine

__all__ = ["PART", "measure"]

PART = "shapes"
SIZES = (2, 3)
CALLERS = 128
WIDTH = 2048
WORDS = 128
TARGET = 0.9
CONFIG = """
backend: "onnxruntime"
max_batch_size: 32
input { name: "INPUT" data_type: TYPE_FP32 dims: [ -1, 128 ] }
output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1, 128 ] }
dynamic_batching { }
parameters { key: "intra_op_thread_count" value: { string_value: "1" } }
"""


def measure(options: Options) -> Outcome:
    plan = options.plan(full=Plan(4, 5), quick=Plan(1, 1))
    progress(PART, f"{plan.repeats} repeats, about {plan.repeats * 2 * plan.seconds + 3:.0f} s")
    with Engine(_repository()) as engine:
        asyncio.run(_window(engine, SIZES, 0.5))
        pairs = [(_mixed(engine, plan.seconds), _sorted(engine, plan.seconds)) for _ in range(plan.repeats)]
    ratio = statistics.median(mixed / ordered for mixed, ordered in pairs)
    mixed, ordered = (statistics.median(rates) for rates in zip(*pairs, strict=True))
    return Outcome(
        PART,
        "Requests of two sizes",
        f"{CALLERS} callers, rows of {SIZES[0]} and of {SIZES[1]} words, batches of 32 at most; {plan.seconds:g} s",
        Table(
            ("requests", "rows per second"),
            (("sorted by size", f"{ordered:.0f}"), ("both sizes at once", f"{mixed:.0f}")),
        ),
        checks=(Check("both sizes at once ÷ sorted by size", ratio, "at least", TARGET),),
        figures={"pairs": pairs},
    )


def _mixed(engine: Engine, seconds: float) -> float:
    return asyncio.run(_window(engine, SIZES, seconds))


def _sorted(engine: Engine, seconds: float) -> float:
    """As many of each size: the time for one of both is the sum of the times"""
    first, second = (asyncio.run(_window(engine, (size,), seconds / 2)) for size in SIZES)
    return 2 / (1 / first + 1 / second)


async def _window(engine: Engine, sizes: tuple[int, ...], seconds: float) -> float:
    """Rows per second; each time one of the sizes is asked"""
    chance = random.Random(7)
    rows = {size: np.ones((1, size, WORDS), np.float32) for size in sizes}
    answered = 0
    opens = time.perf_counter() + min(0.3, seconds / 4)
    closes = opens + seconds

    async def call() -> None:
        nonlocal answered
        while (now := time.perf_counter()) < closes:
            await engine.async_infer("words", rows[chance.choice(sizes)])
            answered += opens <= now

    await asyncio.gather(*[call() for _ in range(CALLERS)])
    return answered / (time.perf_counter() - opens)


def _repository() -> Path:
    directory = BUILD / "shapes"
    version = directory / "words" / "1"
    version.mkdir(parents=True, exist_ok=True)
    (version.parent / "config.pbtxt").write_text(CONFIG, encoding="utf-8")
    weights_of = np.random.default_rng(7)
    widths = (WORDS, WIDTH, WIDTH, WORDS)
    nodes, weights, source = [], [], "INPUT"
    for layer, (before, behind) in enumerate(pairwise(widths)):
        values = weights_of.standard_normal((before, behind), dtype=np.float32) * np.float32(before**-0.5)
        weights.append(numpy_helper.from_array(values, f"weight{layer}"))
        result = "OUTPUT" if layer == len(widths) - 2 else f"layer{layer}"
        nodes.append(helper.make_node("MatMul", [source, f"weight{layer}"], [result]))
        source = result
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "words",
        [value("INPUT", TensorProto.FLOAT, ["rows", "words", WORDS])],
        [value("OUTPUT", TensorProto.FLOAT, ["rows", "words", WORDS])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(version / "model.onnx"))
    return directory


if __name__ == "__main__":
    run_part(PART, measure, parse(__doc__))
