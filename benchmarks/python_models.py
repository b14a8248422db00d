"""Python models and ensembles, beside the real tritonserver with the same repository: CPU of all processes per request.

    python -m benchmarks.python_models [--quick] [--seconds S] [--repeats N] [--save]

Servers and client share core 0, closed loop; both are measured in each repeat, one after the other; ratios are taken
within a repeat, medians over the repeats. The tritonserver is that of nvidia-pytriton, which `make bench-triton`
installs; it has a Python backend and no other.
"""

from __future__ import annotations

import shutil
import statistics
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks import floor, loadgen, machine, processes
from benchmarks.loadgen import ClosedLoop, ClosedLoopRun
from benchmarks.models import MODELS, model_file
from benchmarks.options import BUILD, ROOT, Options, Plan, parse
from benchmarks.outcome import Check, Outcome, Table, progress, run_part
from benchmarks.payload import (
    Payload,
    binary_request,
    grpc_stream_request,
    numbers_request,
    stream_request,
    text_request,
)
from benchmarks.server import Program, Server, Triton

__all__ = ["PART", "measure", "write_repositories"]

PART = "python_models"
CORE = 0
SOURCES = ROOT / "benchmarks" / "triton_models"
ANSWERS = 100
PAGES = 32
CHAIN = ("chain_0", "chain_1", "chain_2")
CHAIN_CONNECTIONS = 32
CHAIN_TARGET = 1.2
OURS_ALONE = ("text_onnx",)
"""What needs ONNX Runtime"""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
NOTES = (
    "Both servers as they start by default, NumPy with one thread in both. `CPU µs`: server and workers, per request.",
    "Text through an ensemble: Python, ONNX, Python; there three Python models, with the same layers in the middle.",
    "Chain: three ONNX models in an ensemble ÷ (the first of them served alone + 2 × raw ONNX Runtime per row).",
)


@dataclass(frozen=True)
class Scene:
    label: str
    connections: int
    target: float
    payload: Payload
    triton_payload: Payload | None = None
    """Where another one is sent to Triton"""
    over_grpc: bool = False


def _text(model: str) -> Payload:
    return text_request(model, "TEXT", "What is in this text?")


SUMS = binary_request("sum", "add_sub")
SCENES = (
    Scene("add_sub in Python, c = 1", 1, 0.45, SUMS),
    Scene("add_sub in Python, c = 8", 8, 0.4, SUMS),
    Scene("add_sub in Python, c = 32", 32, 0.4, SUMS),
    Scene("600 KB in and out, c = 8", 8, 0.4, numbers_request("large_tensor", "INPUT", 150_000)),
    Scene("BLS: one model asks a second one, c = 8", 8, 0.4, binary_request("asks", "add_sub")),
    Scene(f"decoupled, {ANSWERS} answers, c = 8", 8, 0.3, stream_request("repeat", "COUNT", ANSWERS)),
    Scene(
        f"decoupled over gRPC, {PAGES} answers of 1 KB, c = 8",
        8,
        0.25,
        grpc_stream_request("pages", "COUNT", PAGES),
        over_grpc=True,
    ),
    Scene("text through an ensemble of three, c = 8", 8, 0.35, _text("text_onnx"), _text("text_python")),
)


@dataclass(frozen=True)
class Pair:
    kushi: ClosedLoop
    triton: ClosedLoop

    @property
    def ratio(self) -> float:
        return self.kushi.server_cpu_us / self.triton.server_cpu_us


@dataclass(frozen=True)
class Chain:
    """An ensemble of ONNX models, and what its parts cost without one"""

    ensemble: ClosedLoop
    first: ClosedLoop
    raw_us_per_row: float

    @property
    def ratio(self) -> float:
        return self.ensemble.server_cpu_us / (self.first.server_cpu_us + 2 * self.raw_us_per_row)


@dataclass
class Found:
    pairs: dict[str, list[Pair]] = field(default_factory=dict)
    chains: list[Chain] = field(default_factory=list)


def measure(options: Options) -> Outcome:
    plan = options.plan(full=Plan(5, 5), quick=Plan(2, 1))
    seconds = plan.repeats * (len(SCENES) * 2 + 3) * (plan.seconds + 1.5) + 10
    progress(PART, f"{plan.repeats} repeats of {len(SCENES)} pairs and an ensemble, about {seconds:.0f} s")
    loadgen.build()
    kushi_repository, triton_repository = write_repositories(BUILD / PART)
    found = Found()
    with ExitStack() as stack:
        kushi = stack.enter_context(Server(kushi_repository, environment=ONE_THREAD))
        triton = stack.enter_context(Triton(triton_repository, environment=ONE_THREAD))
        for server in (kushi, triton):
            processes.pin(server.pid, CORE)
        for repeat in range(plan.repeats):
            progress(PART, f"repeat {repeat + 1} of {plan.repeats}")
            for scene in SCENES:
                ours = _scene(kushi, scene, scene.payload, plan.seconds)
                theirs = _scene(triton, scene, scene.triton_payload or scene.payload, plan.seconds)
                found.pairs.setdefault(scene.label, []).append(Pair(ours, theirs))
            found.chains.append(_chain(kushi, plan.seconds))
    return _outcome(plan, found)


def write_repositories(directory: Path) -> tuple[Path, Path]:
    """Kushi's, and that of a Triton without ONNX Runtime"""
    kushi, triton = directory / "kushi", directory / "triton"
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(SOURCES, kushi)
    shutil.copytree(SOURCES, triton, ignore=shutil.ignore_patterns(*OURS_ALONE))
    _write_onnx(kushi, "mlp", "mlp")
    for name in CHAIN:
        _write_onnx(kushi, name, "square")
    (kushi / "chain" / "1").mkdir(parents=True)
    (kushi / "chain" / "config.pbtxt").write_text(_chain_config(), encoding="utf-8")
    return kushi, triton


def _write_onnx(repository: Path, name: str, model: str) -> None:
    version = repository / name / "1"
    version.mkdir(parents=True)
    (version / "model.onnx").symlink_to(model_file(model))
    config = 'backend: "onnxruntime" max_batch_size: 32 dynamic_batching { } instance_group { kind: KIND_CPU count: 1 }'
    threads = 'parameters { key: "intra_op_thread_count" value: { string_value: "1" } }'
    (version.parent / "config.pbtxt").write_text(f"{config}\n{threads}\n", encoding="utf-8")


def _chain_config() -> str:
    width = MODELS["square"].inputs[0].dims[0]
    steps = [
        f'step {{ model_name: "{name}" model_version: -1 input_map {{ key: "INPUT" value: "{source}" }} '
        f'output_map {{ key: "OUTPUT" value: "{result}" }} }}'
        for name, source, result in zip(CHAIN, ("INPUT", "a", "b"), ("a", "b", "OUTPUT"), strict=True)
    ]
    ends = [f'{end} {{ name: "{end.upper()}" data_type: TYPE_FP32 dims: [ {width} ] }}' for end in ("input", "output")]
    return "\n".join(['platform: "ensemble" max_batch_size: 32', *ends, "ensemble_scheduling {", *steps, "}\n"])


def _scene(server: Server | Triton, scene: Scene, payload: Payload, seconds: float) -> ClosedLoop:
    if not scene.over_grpc:
        return _pinned(server, payload, scene.connections, seconds)
    return _pinned(server, payload, scene.connections, seconds, port=server.grpc_port, streams=1)


def _pinned(
    server: Program, payload: Payload, connections: int, seconds: float, *, port: int | None = None, streams: int = 0
) -> ClosedLoop:
    run = ClosedLoopRun(
        port or server.port,
        payload,
        connections=connections,
        streams=streams,
        seconds=seconds,
        warmup=1.0,
        pids=server.pids(),
        core=CORE,
    )
    return run.result()


def _chain(server: Program, seconds: float) -> Chain:
    def run(name: str) -> ClosedLoop:
        return _pinned(server, binary_request(name, "square"), CHAIN_CONNECTIONS, seconds)

    raw = floor.measure("square", threads=1, rows=CHAIN_CONNECTIONS, seconds=min(1.0, seconds / 2), core=CORE)
    return Chain(run("chain"), run(CHAIN[0]), raw.cpu_us_per_run / CHAIN_CONNECTIONS)


def _outcome(plan: Plan, found: Found) -> Outcome:
    median = statistics.median
    rows, checks = [], []
    for scene in SCENES:
        pairs = found.pairs[scene.label]
        ratio = median(pair.ratio for pair in pairs)
        rows.append(
            (
                scene.label,
                f"{median(pair.kushi.server_cpu_us for pair in pairs):.0f}",
                f"{median(pair.triton.server_cpu_us for pair in pairs):.0f}",
                f"**{ratio:.2f}**",
                f"{median(pair.kushi.p50_us for pair in pairs):.0f}",
                f"{median(pair.triton.p50_us for pair in pairs):.0f}",
                f"{median(pair.kushi.p99_us for pair in pairs):.0f}",
                f"{median(pair.triton.p99_us for pair in pairs):.0f}",
            )
        )
        checks.append(Check(f"{scene.label}: CPU ÷ Triton's", ratio, "at most", scene.target))
    chains = found.chains
    ratio = median(chain.ratio for chain in chains)
    parts = median(chain.first.server_cpu_us + 2 * chain.raw_us_per_row for chain in chains)
    ensemble = median(chain.ensemble.server_cpu_us for chain in chains)
    label = f"chain ÷ its parts, c = {CHAIN_CONNECTIONS}"
    rows.append((label, f"{ensemble:.1f}", f"{parts:.1f}", f"**{ratio:.2f}**", "", "", "", ""))
    checks.append(Check("three ONNX models in an ensemble: CPU ÷ their parts", ratio, "at most", CHAIN_TARGET))
    every = [pair for pairs in found.pairs.values() for pair in pairs]
    return Outcome(
        PART,
        "Python models and ensembles",
        f"servers and client on core {CORE}, closed loop, median of {plan.repeats} repeats of {plan.seconds:g} s",
        Table(("", "CPU µs", "Triton's", "÷", "p50 µs", "Triton's", "p99 µs", "Triton's"), tuple(rows)),
        tuple(checks),
        notes=(*NOTES, *machine.doubts(median(pair.kushi.foreign_cores for pair in every))),
        figures={
            "pairs": {label: [asdict(pair) for pair in pairs] for label, pairs in found.pairs.items()},
            "chains": [asdict(chain) for chain in chains],
        },
    )


if __name__ == "__main__":
    run_part(PART, measure, parse(__doc__))
