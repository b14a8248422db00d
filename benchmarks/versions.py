"""What do labels, weights and sticky keys of versions cost, and do the shares hold?

    python -m benchmarks.versions [--quick] [--seconds S] [--repeats N] [--save]

Server and client share core 0, closed loop over HTTP, c = 8, a model of two versions that takes microseconds. Ways to a
version, interleaved: without weights; all requests by weights to the version that would get them anyway; the same by a
header; and by a parameter, where every second request is made for one version and finds the other. The shares are those
of requests with weights of 90 and 10, as the server counts them.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from benchmarks import loadgen, processes
from benchmarks.loadgen import ClosedLoopRun
from benchmarks.models import Entry, write_repository
from benchmarks.options import BUILD, Options, Plan, parse
from benchmarks.outcome import Check, Outcome, Table, progress, run_part
from benchmarks.payload import Payload, binary_request
from benchmarks.server import Server

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PART", "measure"]

PART: Final = "versions"
CORE: Final = 0
CONNECTIONS: Final = 8
MODEL: Final = "add_sub"
KEY: Final = "x-user"
WAYS: Final[Mapping[str, Mapping[str, Any]]] = {
    "none": {},
    "weights": {"weights": {"2": 1}},
    "header": {"weights": {"2": 1}, "sticky": KEY},
    "parameter": {"weights": {"1": 1, "2": 1}, "sticky": KEY},
}
SHARED: Final = "shared"
COUNT: Final = 100_000


def measure(options: Options) -> Outcome:
    plan = options.plan(Plan(3, 7), Plan(1, 1))
    warmup = min(0.5, plan.seconds / 3)
    seconds = plan.repeats * len(WAYS) * (plan.seconds + warmup + 0.2)
    progress(PART, f"{plan.repeats} repeats of {len(WAYS)} ways, about {seconds:.0f} s")
    loadgen.build()
    stated = {**WAYS, SHARED: {"weights": {"1": 90, "2": 10}}}
    entries = [Entry(MODEL, way, parameters=_parameters(versions)) for way, versions in stated.items()]
    repository = write_repository(BUILD / "repository", entries)
    for way in stated:
        (repository / way / "2").mkdir()
        (repository / way / "2" / "model.onnx").symlink_to((repository / way / "1" / "model.onnx").resolve())
        with (repository / way / "config.pbtxt").open("a") as file:
            file.write("\nversion_policy { all { } }\n")
    costs: dict[str, list[float]] = {way: [] for way in WAYS}
    with Server(repository) as server:
        processes.pin(server.pid, CORE)
        payloads = {way: _payload(way) for way in stated}
        for repeat in range(plan.repeats):
            progress(PART, f"repeat {repeat + 1} of {plan.repeats}")
            for way in list(WAYS)[:: 1 if repeat % 2 == 0 else -1]:
                run = ClosedLoopRun(
                    server.port,
                    payloads[way],
                    connections=CONNECTIONS,
                    seconds=plan.seconds,
                    warmup=warmup,
                    pids=server.pids(),
                    core=CORE,
                ).result()
                costs[way].append(run.server_cpu_us)
        most = COUNT / 10 if options.quick else COUNT
        while sum(_counts(server)) < most:
            ClosedLoopRun(server.port, payloads[SHARED], connections=CONNECTIONS, seconds=2, warmup=0).result()
        first, second = _counts(server)
    plain = statistics.median(costs["none"])
    ratios = {way: statistics.median(map(_ratio, costs[way], costs["none"])) for way in WAYS}
    off = 100 * abs(second / (first + second) - 0.1)
    rows = [(way, f"{statistics.median(cost):.2f} µs", f"{ratios[way]:.3f}") for way, cost in costs.items()]
    rows.append((f"shares of {first + second} requests", f"{first}, {second}", f"{off:.3f} points off"))
    checks = [
        Check("CPU per request by weights ÷ without", ratios["weights"], "at most", 1.01),
        Check("… by a header ÷ without", ratios["header"], "at most", 1.01),
        Check("shares of weights 90 and 10: points off", off, "at most", 0.3),
    ]
    return Outcome(
        PART,
        "Versions by weight",
        f"{MODEL}, c = {CONNECTIONS}, server and client on core {CORE}, median of {plan.repeats} repeats",
        Table(("way to a version", "server CPU", "÷ without"), tuple(rows)),
        tuple(checks),
        figures={"plain_us": plain, "ratios": ratios, "points_off": off, "counts": [first, second]},
    )


def _ratio(one: float, other: float) -> float:
    return one / other


def _parameters(versions: Mapping[str, Any]) -> dict[str, str]:
    return {"kushi.versions": json.dumps(versions).replace('"', '\\"')} if versions else {}


def _payload(way: str) -> Payload:
    payload = binary_request(way, MODEL)
    if way == "header":
        return replace(payload, headers={**payload.headers, KEY: "somebody"})
    if way == "parameter":
        length = int(payload.headers["Inference-Header-Content-Length"])
        head = json.loads(payload.body[:length])
        head["parameters"][KEY] = "somebody"
        text = json.dumps(head, separators=(",", ":")).encode()
        headers = {**payload.headers, "Inference-Header-Content-Length": str(len(text))}
        return replace(payload, headers=headers, body=text + payload.body[length:])
    return payload


def _counts(server: Server) -> tuple[int, int]:
    """Requests that each version has answered"""
    found = (server.statistics(f"{SHARED}/versions/{version}")["inference_count"] for version in (1, 2))
    first, second = map(int, found)
    return first, second


if __name__ == "__main__":
    run_part(PART, measure, parse(__doc__))
