"""What `kushi.isolate` costs: the same PyTorch models in processes of their own and in that of the server.

    .venv-torch/bin/python -m benchmarks.isolation [--quick] [--seconds S] [--repeats N]

One and eight clients in a closed loop over HTTP ask a network of three small layers, and one layer whose input has
600 KB. In each repeat the two kinds follow one another, in turning order; ratios are taken within a repeat.
"""

from __future__ import annotations

import http.client
import statistics
import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from benchmarks import machine, processes
from benchmarks.options import BUILD, Options, Plan, parse
from benchmarks.outcome import Outcome, Table, progress, run_part
from benchmarks.payload import Payload, numbers_request
from benchmarks.server import HOST, Server

__all__ = ["PART", "measure"]

PART = "isolation"
CLIENTS = (1, 8)
PATIENCE_S = 30.0
SMALL, LARGE = "mlp", "600 KB"
WIDTHS = {SMALL: 256, LARGE: 150_528}
PLAIN, ISOLATED = "plain", "isolated"
NOTE = "CPU: of the server with its processes, divided by the answers; the clients' own is not counted."
CONFIG = """
platform: "pytorch_libtorch"
max_batch_size: 16
input { name: "X" data_type: TYPE_FP32 dims: [ %d ] }
output { name: "OUTPUT__0" data_type: TYPE_FP32 dims: [ 10 ] }
dynamic_batching { }
parameters { key: "kushi.isolate" value { string_value: "%s" } }
"""


@dataclass(frozen=True)
class Asked:
    cpu_us: float
    p50_us: float
    answers: int


def measure(options: Options) -> Outcome:
    plan = options.plan(full=Plan(3, 7), quick=Plan(1, 1))
    repository = _repository()
    points = [(model, clients) for model in WIDTHS for clients in CLIENTS]
    rounds: list[dict[tuple[str, int], dict[str, Asked]]] = []
    with Server(repository) as server:
        for model in WIDTHS:
            for kind in (PLAIN, ISOLATED):
                _ask(server, _payload(model, kind), 1, min(1.0, plan.seconds))
        for repeat in range(plan.repeats):
            progress(PART, f"repeat {repeat + 1} of {plan.repeats}")
            order = (PLAIN, ISOLATED) if repeat % 2 else (ISOLATED, PLAIN)
            rounds.append(
                {
                    (model, clients): {
                        kind: _ask(server, _payload(model, kind), clients, plan.seconds) for kind in order
                    }
                    for model, clients in points
                }
            )
    return _outcome(plan, points, rounds)


def _repository() -> Path:
    repository = BUILD / PART
    networks = {
        SMALL: torch.nn.Sequential(
            torch.nn.Linear(256, 256),
            torch.nn.ReLU(),
            torch.nn.Linear(256, 256),
            torch.nn.ReLU(),
            torch.nn.Linear(256, 10),
        ),
        LARGE: torch.nn.Linear(WIDTHS[LARGE], 10),
    }
    for model, network in networks.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            scripted = torch.jit.script(network.eval())
        for kind in (PLAIN, ISOLATED):
            folder = repository / _name(model, kind)
            (folder / "1").mkdir(parents=True, exist_ok=True)
            scripted.save(str(folder / "1" / "model.pt"))
            text = CONFIG % (WIDTHS[model], str(kind == ISOLATED).lower())
            (folder / "config.pbtxt").write_text(text, encoding="utf-8")
    return repository


def _name(model: str, kind: str) -> str:
    return f"{kind}_{WIDTHS[model]}"


def _payload(model: str, kind: str) -> Payload:
    return numbers_request(_name(model, kind), "X", WIDTHS[model])


def _ask(server: Server, payload: Payload, clients: int, seconds: float) -> Asked:
    server.answer(payload)
    times: list[float] = []
    until = time.monotonic() + seconds
    before = _cpu_seconds(server)
    threads = [threading.Thread(target=_loop, args=(server, payload, until, times)) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cpu_us = (_cpu_seconds(server) - before) / len(times) * 1e6
    return Asked(cpu_us, statistics.median(times) * 1e6, len(times))


def _loop(server: Server, payload: Payload, until: float, times: list[float]) -> None:
    connection = http.client.HTTPConnection(HOST, server.port, timeout=PATIENCE_S)
    while time.monotonic() < until:
        begun = time.perf_counter()
        connection.request("POST", payload.path, payload.body, payload.headers)
        response = connection.getresponse()
        body = response.read()
        if response.status != http.client.OK:
            raise SystemExit(f"HTTP {response.status}: {body[:300].decode(errors='replace')}")
        times.append(time.perf_counter() - begun)
    connection.close()


def _cpu_seconds(server: Server) -> float:
    return sum(map(processes.cpu_seconds, server.pids()))


def _outcome(
    plan: Plan, points: Sequence[tuple[str, int]], rounds: Sequence[dict[tuple[str, int], dict[str, Asked]]]
) -> Outcome:
    rows: list[tuple[str, ...]] = []
    figures = []
    for point in points:
        runs = [found[point] for found in rounds]
        ratios = sorted(run[ISOLATED].cpu_us / run[PLAIN].cpu_us for run in runs)
        cpu, p50 = (
            [statistics.median(getattr(run[kind], name) for run in runs) for kind in (PLAIN, ISOLATED)]
            for name in ("cpu_us", "p50_us")
        )
        rows.append(
            (
                point[0],
                f"{point[1]}",
                f"{cpu[0]:.0f}",
                f"{cpu[1]:.0f}",
                f"**{statistics.median(ratios):.2f}** ({ratios[0]:.2f} to {ratios[-1]:.2f})",
                f"{p50[0]:.0f}",
                f"{p50[1]:.0f}",
            )
        )
        figures.append(
            {"point": point, "ratios": ratios, "runs": [{k: asdict(v) for k, v in run.items()} for run in runs]}
        )
    return Outcome(
        PART,
        "PyTorch models in processes of their own",
        f"over HTTP, median of {plan.repeats} repeats of {plan.seconds:g} s; PyTorch {torch.__version__}",
        Table(("model", "clients", "CPU µs", "isolated", "ratio", "p50 µs", "isolated"), tuple(rows)),
        notes=(NOTE, *machine.doubts(0.0)),
        figures={"points": figures},
    )


if __name__ == "__main__":
    run_part(PART, measure, parse(__doc__))
