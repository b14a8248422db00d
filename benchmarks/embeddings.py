"""Texts per second of CPU: a model of texts that is served, beside ONNX Runtime and what people have otherwise.

    make bench-embeddings, or python -m benchmarks.embeddings [--quick] [--seconds S] [--repeats N] [--save]

MiniLM, in eight bits (`make examples` takes it) and as it was trained. Texts have lengths of a log-normal distribution,
median 64 tokens, sigma 0.8, cut at 128. Servers are asked one text at a time by 32 clients, on core 0, the clients
beside it; ratios are taken within a repeat, medians over the repeats.

* The floor has all texts before it starts, sorts them, and tokenising is not counted: batches of several sizes, the
  best of which counts, on one thread.
* The ensemble is what Triton's users write: a Python model makes tokens, filled up to a multiple of 16 so that requests
  share batches, and another one pools. Kushi serves it here, with the same network.
* sentence-transformers behind FastAPI, with a batcher by hand, has the network as it was trained; it is measured where
  `make bench-embeddings` has installed it.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from benchmarks import processes
from benchmarks.options import BUILD, ROOT, Options, Plan, parse
from benchmarks.outcome import Check, Outcome, Table, progress, run_part
from benchmarks.server import HOST, Program, Server, free_port
from runners import Client
from runners.pretrained import take

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
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
STEPS: Final = ROOT / "benchmarks" / "text_steps"
LISTING: Final = ROOT / "benchmarks" / "embeddings.toml"
PYTHON: Final = ROOT / ".venv-sentences" / "bin" / "python"
CLOSE: Final = 1e-4
ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
WORDS: Final = ("time", "way", "year", "work", "day", "thing", "man", "world", "life", "hand", "part", "child", "eye")


@dataclass
class Found:
    """Texts per second of CPU, by repeat"""

    floors: list[dict[int, float]] = field(default_factory=list)
    served: list[float] = field(default_factory=list)
    padding: list[float] = field(default_factory=list)
    """The part of what has run that filled batches up"""
    steps: list[float] = field(default_factory=list)
    trained: list[float] = field(default_factory=list)
    """Served as it was trained, in 32 bits"""
    sentences: list[float] = field(default_factory=list)


def measure(options: Options) -> Outcome:
    if not (MODEL / "1" / "model.onnx").exists():
        raise SystemExit(f"{MODEL} has no model: `make examples` takes it")
    plan = options.plan(Plan(8, 4), Plan(5, 2))
    has_sentences = PYTHON.exists()
    servers = 4 if has_sentences else 2
    progress(PART, f"{plan.repeats} repeats, about {plan.repeats * ((plan.seconds + 2) * servers + 20):.0f} s")
    encoded, texts = _encoded()
    found = Found()
    repository = _write()
    folder = _trained(repository) if has_sentences else None
    with ExitStack() as stack:
        kushi = stack.enter_context(Server(repository))
        sentences = stack.enter_context(_sentences(folder)) if folder else None
        for server in (kushi, sentences):
            for pid in server.pids() if server else ():
                processes.pin(pid, CORE)
        if sentences:
            _check_same(kushi, sentences, texts)
        for repeat in range(plan.repeats):
            progress(PART, f"repeat {repeat + 1} of {plan.repeats}")
            found.floors.append({size: _floor(encoded[::4], size) for size in BATCHES})
            before = _tokens(kushi)
            found.served.append(_served(kushi, texts, plan.seconds, lambda: _client(kushi, "m", "text")))
            found.padding.append(_padding(before, _tokens(kushi)))
            found.steps.append(_served(kushi, texts, plan.seconds, lambda: _client(kushi, "steps", "TEXT")))
            if sentences:
                found.trained.append(_served(kushi, texts, plan.seconds, lambda: _client(kushi, "trained", "text")))
                found.sentences.append(_served(sentences, texts, plan.seconds, lambda: _posting(sentences)))
    return _outcome(plan, found)


def _outcome(plan: Plan, found: Found) -> Outcome:
    best = [max(floor.values()) for floor in found.floors]
    floors = [
        (f"ONNX Runtime, batches of {size} tokens", f"{statistics.median(floor[size] for floor in found.floors):,.1f}")
        for size in BATCHES
    ]
    servers = [
        (f"served, {CLIENTS} clients, a text each", found.served),
        ("the same as a Python tokenizer, the network and Python pooling", found.steps),
        ("served as it was trained, in 32 bits", found.trained),
        ("sentence-transformers behind FastAPI, in 32 bits", found.sentences),
    ]
    rows = [*floors, *((label, f"{statistics.median(of):,.1f}") for label, of in servers if of)]
    checks = [
        Check("texts per CPU second ÷ ONNX Runtime on equal lengths", _ratio(found.served, best), "at least", 0.85),
        Check("part of the tokens that fill batches up", statistics.median(found.padding), "at most", 0.15),
        Check("÷ a Python tokenizer and an ensemble", _ratio(found.served, found.steps), "at least", 1.5),
    ]
    if found.sentences:
        checks += [
            Check("÷ sentence-transformers behind FastAPI", _ratio(found.served, found.sentences), "at least", 2),
            Check("the same, both in 32 bits", _ratio(found.trained, found.sentences), "at least", 1),
        ]
    return Outcome(
        PART,
        "Embeddings of texts",
        f"MiniLM in eight bits, lengths log-normal, server on core {CORE}, median of {plan.repeats} repeats",
        Table(("", "texts per CPU second"), tuple(rows)),
        tuple(checks),
        figures={"found": vars(found)},
    )


def _ratio(one: Sequence[float], other: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


def _cpu_seconds(server: Program) -> float:
    return sum(map(processes.cpu_seconds, server.pids()))


def _tokens(server: Server) -> tuple[float, float]:
    """Of texts, and what filled up"""
    with Client(f"http://{HOST}:{server.port}") as client:
        lines = [line for line in client.get_metrics().splitlines() if 'model="m"' in line]
    counts = [
        next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))
        for name in ("kushi_text_tokens_total", "kushi_text_padding_tokens_total")
    ]
    return counts[0], counts[1]


def _padding(before: tuple[float, float], after: tuple[float, float]) -> float:
    tokens, filled = after[0] - before[0], after[1] - before[1]
    return filled / (tokens + filled)


def _encoded() -> tuple[Sequence[Any], list[str]]:
    tokenizer = Tokenizer.from_file(str(MODEL / "1" / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST)
    texts = _texts()
    return sorted((tokenizer.encode(text) for text in texts), key=lambda one: len(one.ids)), texts


def _client(server: Program, model: str, name: str) -> Callable[[str], object]:
    client = Client(f"http://{HOST}:{server.port}")
    return lambda text: client.infer(model, {name: np.array([[text]], np.object_)})


def _posting(server: Program) -> Callable[[str], object]:
    connection = HTTPConnection(HOST, server.port)

    def ask(text: str) -> object:
        connection.request("POST", "/embed", json.dumps({"text": text}), {"content-type": "application/json"})
        return json.loads(connection.getresponse().read())

    return ask


def _check_same(kushi: Program, sentences: Program, texts: Sequence[str]) -> None:
    """Both give the same vectors, or nothing is compared."""
    ours, theirs = _client(kushi, "trained", "text"), _posting(sentences)
    for text in texts[:8]:
        answer: Any = ours(text)
        difference = float(np.abs(answer["embedding"][0] - np.asarray(theirs(text))).max())
        if difference > CLOSE:
            raise SystemExit(f"vectors of sentence-transformers are others: {difference}")


def _texts() -> list[str]:
    random = np.random.default_rng(0)
    lengths = np.clip(random.lognormal(np.log(62), 0.8, TEXTS), 1, LONGEST).astype(int)
    return [" ".join(random.choice(WORDS, length)) for length in lengths]


def _write() -> Path:
    repository = BUILD / PART / "repository"
    shutil.rmtree(repository, ignore_errors=True)
    shutil.copytree(STEPS, repository)
    (repository / "steps" / "1").mkdir()
    shutil.copy(MODEL / "1" / "tokenizer.json", repository / "tokenize" / "1")
    for name in ("m", "network"):
        version = repository / name / "1"
        version.mkdir(parents=True)
        shutil.copy(MODEL / "1" / "model.onnx", version)
    shutil.copy(MODEL / "1" / "tokenizer.json", repository / "m" / "1")
    (repository / "m" / "config.pbtxt").write_text("instance_group { kind: KIND_CPU count: 1 }\n")
    return repository


def _trained(repository: Path) -> Path:
    """The network in 32 bits as a model of the repository, in the folder that sentence-transformers reads"""
    made = BUILD / PART / "trained"
    if not (made / "model.onnx").exists():
        take(LISTING, made, lambda text: progress(PART, text))
        command = [str(PYTHON), "-m", "benchmarks.peers.sentences_export", str(made), str(made / "model.onnx")]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    shutil.copytree(made, repository / "trained" / "1")
    longest = f'parameters {{ key: "kushi.max_tokens" value {{ string_value: "{LONGEST}" }} }}\n'
    (repository / "trained" / "config.pbtxt").write_text(f"{longest}instance_group {{ kind: KIND_CPU count: 1 }}\n")
    return made


def _sentences(folder: Path) -> Program:
    port = free_port()
    command = [str(PYTHON), "-m", "benchmarks.peers.sentences_app", str(folder), str(port)]
    return Program(command, port, "/readyz", ONE_THREAD, log="sentences.log")


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


def _served(
    server: Program, texts: Sequence[str], seconds: float, client: Callable[[], Callable[[str], object]]
) -> float:
    """The same; each client goes through texts of its own"""
    is_over = threading.Event()
    counts = [0] * CLIENTS

    def ask(number: int) -> None:
        asking = client()
        at = number
        while not is_over.is_set():
            asking(texts[at % len(texts)])
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
