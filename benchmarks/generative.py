"""Tokens per second of a language model that is served, beside its pipeline alone in a script.

    make bench-generative, or python -m benchmarks.generative [--quick] [--seconds S] [--repeats N] [--save]

SmolLM2-135M-Instruct with four bits, 64 tokens for each prompt, in streams over HTTP. The server with the process of
its model, and the script, are on core 0 with one thread; the clients beside them. Both read the same file under the
same scheduler. Ratios are taken within a repeat, medians over the repeats.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPConnection
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from benchmarks import processes
from benchmarks.options import BUILD, ROOT, Options, Plan, parse
from benchmarks.outcome import Check, Outcome, Table, progress, run_part
from benchmarks.server import HOST, Server
from runners.pretrained import take

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["PART", "measure"]

PART: Final = "generative"
CORE: Final = 0
TOKENS: Final = 64
CROWDS: Final = (1, 8)
LISTING: Final = ROOT / "benchmarks" / "generative.toml"
SCRIPT: Final = ROOT / "benchmarks" / "peers" / "bare_pipeline.py"
SCHEDULER: Final = {
    "num_kv_blocks": 2000,
    "max_num_batched_tokens": 128,
    "max_num_seqs": 64,
    "enable_prefix_caching": False,
    "dynamic_split_fuse": True,
}
CONFIG: Final = """
backend: "openvino_genai"
parameters { key: "INFERENCE_NUM_THREADS" value { string_value: "1" } }
"""


@dataclass
class Found:
    """By repeat and crowd: tokens per second, and seconds between tokens"""

    bare: list[list[tuple[float, float]]] = field(default_factory=list)
    served: list[list[tuple[float, float]]] = field(default_factory=list)


def measure(options: Options) -> Outcome:
    plan = options.plan(Plan(8, 5), Plan(4, 2))
    progress(PART, f"{plan.repeats} repeats, about {plan.repeats * (plan.seconds * 4 + 10):.0f} s")
    found = Found()
    repository = _write()
    with Server(repository) as server:
        for pid in server.pids():
            processes.pin(pid, CORE)
        _crowd(server, 1)
        for repeat in range(plan.repeats):
            progress(PART, f"repeat {repeat + 1} of {plan.repeats}")
            found.bare.append(_bare(repository, rounds=max(1, round(plan.seconds))))
            found.served.append([_served(server, crowd, plan.seconds) for crowd in CROWDS])
    return _outcome(plan, found)


def _outcome(plan: Plan, found: Found) -> Outcome:
    rows = [
        (f"{label}, {crowd} at once", f"{_median(of, place, 0):,.1f} ({1000 * _median(of, place, 1):.2f} ms)")
        for place, crowd in enumerate(CROWDS)
        for label, of in (("the pipeline in a script", found.bare), ("served", found.served))
    ]
    pairs = list(zip(found.served, found.bare, strict=True))
    rate = statistics.median(served[1][0] / bare[1][0] for served, bare in pairs)
    added = statistics.median(served[0][1] / bare[0][1] for served, bare in pairs) - 1
    checks = (
        Check("tokens per second ÷ the pipeline in a script, 8 at once", rate, "at least", 0.97),
        Check("time between tokens that is added, 1 alone", added, "at most", 0.03),
    )
    return Outcome(
        PART,
        "Language models",
        f"SmolLM2-135M, {TOKENS} tokens each, streams over HTTP, all on core {CORE}, median of {plan.repeats} repeats",
        Table(("", "tokens per second (time between tokens)"), tuple(rows)),
        checks,
        figures={"found": vars(found)},
    )


def _median(of: Sequence[Sequence[tuple[float, float]]], crowd: int, which: int) -> float:
    return statistics.median(each[crowd][which] for each in of)


def _write() -> Path:
    repository = BUILD / PART / "repository"
    version = repository / "m" / "1"
    if not (version / "model.gguf").exists():
        shutil.rmtree(repository, ignore_errors=True)
        take(LISTING, version, lambda text: progress(PART, text))
    (repository / "m" / "config.pbtxt").write_text(CONFIG)
    return repository


def _prompts(crowd: int) -> list[str]:
    return [f"Tell me story number {number} about the" for number in range(crowd)]


def _bare(repository: Path, rounds: int) -> list[tuple[float, float]]:
    order = {
        "path": str(repository / "m" / "1" / "model.gguf"),
        "scheduler": SCHEDULER,
        "properties": {"KV_CACHE_PRECISION": "u8", "INFERENCE_NUM_THREADS": 1},
        "crowds": [_prompts(crowd) for crowd in CROWDS],
        "tokens": TOKENS,
        "core": CORE,
        "rounds": rounds,
    }
    command = [sys.executable, str(SCRIPT), json.dumps(order)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    lines = done.stdout.splitlines()[-len(CROWDS) :]
    return [(rate, step) for rate, step in map(json.loads, lines)]


def _served(server: Server, crowd: int, seconds: float) -> tuple[float, float]:
    until = time.monotonic() + seconds
    rounds = [_crowd(server, crowd)]
    while time.monotonic() < until:
        rounds.append(_crowd(server, crowd))
    return statistics.median(one[0] for one in rounds), statistics.median(one[1] for one in rounds)


def _crowd(server: Server, crowd: int) -> tuple[float, float]:
    """All prompts at once: tokens per second, and the usual time between two pieces"""
    begun = time.perf_counter()
    with ThreadPoolExecutor(crowd) as pool:
        times = list(pool.map(lambda prompt: _stream(server, prompt), _prompts(crowd)))
    took = time.perf_counter() - begun
    gaps = [later - earlier for one in times for earlier, later in pairwise(one)]
    return crowd * TOKENS / took, statistics.median(gaps)


def _stream(server: Server, prompt: str) -> list[float]:
    """When each piece came"""
    settings = json.dumps({"temperature": 0, "max_tokens": TOKENS, "ignore_eos": True})
    body = {"text_input": prompt, "stream": True, "sampling_parameters": settings, "return_num_output_tokens": True}
    connection = HTTPConnection(HOST, server.port)
    connection.request("POST", "/v2/models/m/generate_stream", json.dumps(body))
    times, tokens = [], 0
    for line in connection.getresponse():
        if line.startswith(b"data:"):
            times.append(time.perf_counter())
            tokens += json.loads(line[5:])["num_output_tokens"]
    connection.close()
    if tokens != TOKENS:
        raise SystemExit(f"a stream has {tokens} tokens")
    return times


if __name__ == "__main__":
    run_part(PART, measure, parse(__doc__))
