"""Texts per second of CPU: a model of texts that is served, beside ONNX Runtime on batches of equal lengths.

    python -m benchmarks.embeddings [--quick] [--seconds S] [--repeats N] [--save]

MiniLM in eight bits (`make examples` takes it). Texts have lengths of a log-normal distribution, median 64 tokens,
sigma 0.8, cut at 128. The floor has all texts before it starts, sorts them, and tokenising is not counted: batches of
several sizes, the best of which counts, on one thread. The server is asked over HTTP one text at a time by 32 clients,
on core 0, the clients beside it.
"""

from __future__ import annotations

import shutil
import statistics
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from benchmarks import processes
from benchmarks.options import BUILD, ROOT, Options, Plan, parse
from benchmarks.outcome import Check, Outcome, Table, progress, run_part
from benchmarks.server import Server
from runners import Client

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["PART", "measure"]

PART: Final = "embeddings"
CORE: Final = 0
CLIENTS: Final = 32
TEXTS: Final = 1024
LONGEST: Final = 128
BATCHES: Final = (256, 512, 1024, 2048, 4096)
"""Tokens"""
MODEL: Final = ROOT / "examples" / "search" / "model_repository" / "embedder"
WORDS: Final = ("time", "way", "year", "work", "day", "thing", "man", "world", "life", "hand", "part", "child", "eye")


def measure(options: Options) -> Outcome:
    if not (MODEL / "1" / "model.onnx").exists():
        raise SystemExit(f"{MODEL} has no model: `make examples` takes it")
    plan = options.plan(Plan(3, 10), Plan(1, 3))
    progress(PART, f"{plan.repeats} repeats, about {plan.repeats * (plan.seconds * 2 + 15):.0f} s")
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST)
    texts = _texts()
    encoded = sorted((tokenizer.encode(text) for text in texts), key=lambda one: len(one.ids))
    floors: list[dict[int, float]] = []
    served: list[float] = []
    with Server(_write()) as server:
        for pid in server.pids():
            processes.pin(pid, CORE)
        for repeat in range(plan.repeats):
            progress(PART, f"repeat {repeat + 1} of {plan.repeats}")
            floors.append({size: _floor(encoded, size) for size in BATCHES})
            served.append(_served(server, texts, plan.seconds))
    best = [max(floor.values()) for floor in floors]
    ratio = statistics.median(one / other for one, other in zip(served, best, strict=True))
    rows = [
        (f"ONNX Runtime, batches of {size} tokens", f"{statistics.median(floor[size] for floor in floors):,.1f}", "")
        for size in BATCHES
    ]
    rows.append((f"served, {CLIENTS} clients, a text each", f"{statistics.median(served):,.1f}", f"{ratio:.2f}"))
    return Outcome(
        PART,
        "Embeddings of texts",
        f"MiniLM in eight bits, lengths log-normal, server on core {CORE}, median of {plan.repeats} repeats",
        Table(("", "texts per CPU second", "÷ ONNX Runtime's best"), tuple(rows)),
        (Check("texts per CPU second ÷ ONNX Runtime on equal lengths", ratio, "at least", 0.85),),
        figures={"floors": floors, "served": served},
    )


def _cpu_seconds(server: Server) -> float:
    return sum(map(processes.cpu_seconds, server.pids()))


def _texts() -> list[str]:
    random = np.random.default_rng(0)
    lengths = np.clip(random.lognormal(np.log(62), 0.8, TEXTS), 1, LONGEST).astype(int)
    return [" ".join(random.choice(WORDS, length)) for length in lengths]


def _write() -> Path:
    repository = BUILD / PART
    version = repository / "m" / "1"
    version.mkdir(parents=True, exist_ok=True)
    shutil.copy(MODEL / "1" / "model.onnx", version)
    shutil.copy(MODEL / "tokenizer.json", version)
    (repository / "m" / "config.pbtxt").write_text("instance_group { kind: KIND_CPU count: 1 }\n")
    return repository


def _floor(encoded: Sequence[Any], size: int) -> float:
    """Texts per second of CPU"""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(MODEL / "1" / "model.onnx", options)
    names = {one.name for one in session.get_inputs()}
    batches = list(_batches(encoded, size))
    with processes.pinned(CORE):
        session.run(None, _inputs(batches[0], names))
        begun = time.process_time()
        for batch in batches:
            session.run(None, _inputs(batch, names))
        return len(encoded) / (time.process_time() - begun)


def _batches(encoded: Sequence[Any], size: int) -> Any:  # noqa: ANN401 - of what the tokenizer gives
    begin = 0
    while begin < len(encoded):
        end = begin + 1
        while end < len(encoded) and len(encoded[end].ids) * (end + 1 - begin) <= size:
            end += 1
        yield encoded[begin:end]
        begin = end


def _inputs(batch: Sequence[Any], names: set[str]) -> dict[str, Any]:
    longest = max(len(one.ids) for one in batch)
    arrays = {name: np.zeros((len(batch), longest), np.int64) for name in names}
    for at, one in enumerate(batch):
        for name, values in (("input_ids", one.ids), ("attention_mask", one.attention_mask)):
            arrays[name][at, : len(values)] = values
    return arrays


def _served(server: Server, texts: Sequence[str], seconds: float) -> float:
    """The same; each client goes through texts of its own"""
    is_over = threading.Event()
    counts = [0] * CLIENTS

    def ask(number: int) -> None:
        with Client(f"http://127.0.0.1:{server.port}") as client:
            at = number
            while not is_over.is_set():
                client.infer("m", np.array([[texts[at % len(texts)]]], np.object_))
                counts[number] += 1
                at += CLIENTS

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    before, begun = sum(counts), _cpu_seconds(server)
    time.sleep(seconds)
    asked, spent = sum(counts) - before, _cpu_seconds(server) - begun
    is_over.set()
    for thread in threads:
        thread.join()
    return asked / spent


if __name__ == "__main__":
    run_part(PART, measure, parse(__doc__))
