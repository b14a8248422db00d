"""Does anything grow? Constant load on seven models, with timeouts, cancelled requests and clients that come and go.

    python -m benchmarks.soak [--minutes M] [--save]

Unpinned. Four models get a fixed number of requests a second (`load/openloop.cc`, which counts every answer); each
request of `add_sub` comes on a connection of its own; `waiting` and `left` collect batches for longer than anybody
waits, so that their requests end by their deadline, and because their client leaves. In the end the clients' counts by
outcome must be those of the statistics and of the metrics, to the last request. The windows are shares of the whole:
with 10 minutes the CPU time of the last two is compared with that of the second and the third, and memory may not grow
in the last eight. Machines change in ten minutes, too: in the end that server and one that has just started are loaded
in turns, and compared.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from itertools import pairwise
from math import prod
from pathlib import Path

from benchmarks import loadgen, processes, report
from benchmarks.loadgen import ClosedLoopRun, SteadyRun
from benchmarks.models import Entry, write_repository
from benchmarks.options import BUILD, RESULTS, ROOT, Options, parser
from benchmarks.outcome import Check, Outcome, Table, progress, run_part
from benchmarks.payload import Payload, binary_request
from benchmarks.server import HOST, Server

__all__ = ["PART", "measure"]

PART = "soak"
MINUTES = 10.0
QUICK_MINUTES = 2.0
RATES = {"digits": 300, "toneact": 200, "mlp": 300, "wide": 20}
SHIPPED: dict[str, dict[str, tuple[int, ...]]] = {
    "digits": {"image": (1, 1, 8, 8)},
    "toneact": {"chunk": (1, 256), "state": (1, 64)},
}
RECONNECTING = "add_sub"
WAITING = "waiting"
LEFT = "left"
COLLECTS = "dynamic_batching { preferred_batch_size: [ 32 ] max_queue_delay_microseconds: 60000000 }"
TIMEOUT_US = 20_000
SMALL_PAUSE_S = 0.02
LEAVING_PAUSE_S = 0.1
PATIENCE_S = 20.0
LOOKS = 60
TELL_S = 10.0
EARLY = (0.1, 0.3)
LATE = (0.8, 1.0)
TURNS = 12
TURN_S = 2.0
CORE = 0
GROWS = (0.2, 1.0)
CPU_TARGET = 1.03
SLOPE_TARGET = 1.0
REASONS = ("REJECTED", "CANCELED", "BACKEND", "OTHER")
SUCCESS = "nv_inference_request_success"
FAILURE = "nv_inference_request_failure"


@dataclass(frozen=True)
class Look:
    second: float
    cpu_s: float
    requests: int
    rss_mb: float


class Crowd:
    """Small clients beside the steady load. Counts each request by its model and its outcome."""

    def __init__(self, server: Server) -> None:
        self.counted: Counter[tuple[str, str]] = Counter()
        self._server = server
        self._stop = threading.Event()

    def run(self, pool: ThreadPoolExecutor) -> list[Future[None]]:
        return [pool.submit(client) for client in (self._reconnects, self._times_out, self._leaves)]

    def stop(self) -> None:
        self._stop.set()

    def _reconnects(self) -> None:
        payload = binary_request(RECONNECTING, "add_sub")
        while not self._stop.wait(SMALL_PAUSE_S):
            connection = HTTPConnection(HOST, self._server.port, timeout=PATIENCE_S)
            self._ask(connection, payload, "success", 200)
            connection.close()

    def _times_out(self) -> None:
        payload = binary_request(WAITING, "add_sub")
        hurried = Payload(payload.path, {**payload.headers, "kushi-timeout-us": str(TIMEOUT_US)}, payload.body)
        connection = HTTPConnection(HOST, self._server.port, timeout=PATIENCE_S)
        while not self._stop.wait(SMALL_PAUSE_S):
            self._ask(connection, hurried, "REJECTED", 503)
        connection.close()

    def _leaves(self) -> None:
        payload = binary_request(LEFT, "add_sub")
        while not self._stop.wait(LEAVING_PAUSE_S):
            connection = HTTPConnection(HOST, self._server.port, timeout=PATIENCE_S)
            connection.request("POST", payload.path, payload.body, payload.headers)
            self._until_pending(1)  # the server has it: from here on it is a cancelled one
            connection.close()
            self._until_pending(0)
            self.counted[LEFT, "CANCELED"] += 1

    def _ask(self, connection: HTTPConnection, payload: Payload, outcome: str, status: int) -> None:
        connection.request("POST", payload.path, payload.body, payload.headers)
        response = connection.getresponse()
        body = response.read()
        if response.status != status:
            raise SystemExit(f"POST {payload.path}: HTTP {response.status}: {body[:300].decode(errors='replace')}")
        self.counted[payload.path.split("/")[3], outcome] += 1

    def _until_pending(self, count: int) -> None:
        limit = time.monotonic() + PATIENCE_S
        while _series(self._server.metrics(), "nv_inference_pending_request_count", LEFT) != count:
            if time.monotonic() > limit:
                raise SystemExit(f"{count} requests of '{LEFT}' never waited")
            time.sleep(0.005)


def measure(options: Options) -> Outcome:
    plan_s = options.seconds or 60 * (QUICK_MINUTES if options.quick else MINUTES)
    progress(PART, f"{plan_s / 60:g} minutes")
    loadgen.build()
    models = (*RATES, RECONNECTING, WAITING, LEFT)
    repository = _repository()
    with Server(repository) as server, ThreadPoolExecutor() as pool:
        crowd = Crowd(server)
        steady = {
            model: SteadyRun(server.port, _payload(model), rate=rate, connections=4, seconds=plan_s)
            for model, rate in RATES.items()
        }
        clients = crowd.run(pool)
        try:
            looks = _watch(server, models, plan_s)
        finally:
            crowd.stop()
        for client in clients:
            client.result()
        counted = crowd.counted + Counter({(model, "success"): run.answered() for model, run in steady.items()})
        tallies = _tallies(server, models, counted)
        aged = _compared_with_a_new_one(server, repository)
    early, late = _cpu_us(_within(looks, EARLY)), _cpu_us(_within(looks, LATE))
    grows = _within(looks, GROWS)
    slope = 60 * statistics.linear_regression([look.second for look in grows], [look.rss_mb for look in grows]).slope
    differences = sum(len(set(told) - {None}) > 1 for told in tallies.values())
    return Outcome(
        PART,
        "Does anything grow?",
        f"{len(models)} models, {plan_s / 60:g} minutes, unpinned, {sum(RATES.values())} requests a second and a crowd",
        Table(
            ("model", "outcome", "the clients' count", "statistics", "metrics"),
            tuple(
                (model, outcome, *("" if count is None else str(count) for count in told))
                for (model, outcome), told in tallies.items()
                if any(told)
            ),
        ),
        (
            Check(
                "CPU per request, last fifth of the time ÷ the second and third tenth",
                late / early,
                "at most",
                CPU_TARGET,
            ),
            Check(
                "CPU per request ÷ that of a server which has just started, in turns",
                statistics.median(aged),
                "at most",
                CPU_TARGET,
            ),
            Check("resident memory, MB a minute over the last four fifths", slope, "at most", SLOPE_TARGET),
            Check("outcomes that clients, statistics and metrics count differently", differences, "at most", 0),
        ),
        notes=(
            f"CPU per request: {early:.1f} µs, in the end {late:.1f} µs.",
            f"Beside a server which has just started, the turns gave {min(aged):.2f} to {max(aged):.2f}.",
            f"Resident memory: {looks[0].rss_mb:.1f} MB, in the end {looks[-1].rss_mb:.1f} MB.",
            "Statistics tell failures of all reasons together. Deadlines that passed count as REJECTED.",
        ),
        figures={
            "ratio": late / early,
            "aged": aged,
            "slope_mb_per_minute": slope,
            "cpu_us": [(two[1].second, _cpu_us(list(two))) for two in pairwise(looks)],
            "rss_mb": [(look.second, look.rss_mb) for look in looks],
            "early_s": [share * plan_s for share in EARLY],
            "late_s": [share * plan_s for share in LATE],
            "counts": [(model, outcome, *told) for (model, outcome), told in tallies.items()],
        },
    )


def _repository() -> Path:
    entries = [Entry("mlp", "mlp"), Entry("wide", "wide"), Entry("add_sub", RECONNECTING)]
    entries += [Entry("add_sub", name, batching=COLLECTS) for name in (WAITING, LEFT)]
    repository = write_repository(BUILD / "repository", entries)
    for name in SHIPPED:
        (repository / name).symlink_to(ROOT / "tests/small_service/model_repository" / name)
    return repository


def _payload(model: str) -> Payload:
    """Binary for the models of the benchmarks, JSON for those that come with this repository."""
    if model not in SHIPPED:
        return binary_request(model, model)
    tensors = [
        {"name": name, "datatype": "FP32", "shape": shape, "data": [0.5] * prod(shape)}
        for name, shape in SHIPPED[model].items()
    ]
    return Payload(f"/v2/models/{model}/infer", {}, json.dumps({"inputs": tensors}).encode())


def _watch(server: Server, models: Iterable[str], seconds: float) -> list[Look]:
    started = time.monotonic()
    looks: list[Look] = []
    tell_at = TELL_S
    while not looks or looks[-1].second < seconds:
        time.sleep(max(0.0, started + len(looks) * seconds / LOOKS - time.monotonic()))
        inferences = (server.statistics(model)["inference_stats"] for model in models)
        looks.append(
            Look(
                time.monotonic() - started,
                sum(processes.cpu_seconds(pid) for pid in server.pids()),
                sum(one["success"]["count"] + one["fail"]["count"] for one in inferences),
                sum(processes.rss_mb(pid) for pid in server.pids()),
            )
        )
        if looks[-1].second >= tell_at:
            tell_at += TELL_S
            what = f"{looks[-1].requests} requests, lately {_cpu_us(looks[-2:]):.1f} µs each, {looks[-1].rss_mb:.1f} MB"
            progress(PART, f"{looks[-1].second:.0f} of {seconds:.0f} s: {what}")
    return looks


def _cpu_us(looks: list[Look]) -> float:
    return (looks[-1].cpu_s - looks[0].cpu_s) / (looks[-1].requests - looks[0].requests) * 1e6


def _compared_with_a_new_one(server: Server, repository: Path) -> list[float]:
    """CPU per request ÷ that of another process, client and server on one core, turn by turn."""
    progress(PART, f"beside a new server, {2 * TURNS * TURN_S:.0f} s")
    payload = _payload("mlp")

    def cpu_us(one: Server) -> float:
        return (
            ClosedLoopRun(
                one.port, payload, connections=8, seconds=TURN_S, warmup=TURN_S / 4, pids=one.pids(), core=CORE
            )
            .result()
            .server_cpu_us
        )

    with Server(repository) as fresh:
        for one in (server, fresh):
            processes.pin(one.pid, CORE)
            cpu_us(one)
        ratios = []
        for turn in range(TURNS):
            both = {one: cpu_us(one) for one in ((server, fresh) if turn % 2 else (fresh, server))}
            ratios.append(both[server] / both[fresh])
        return ratios


def _within(looks: list[Look], window: tuple[float, float]) -> list[Look]:
    """Those of a window, which is given in shares of the whole time."""
    whole = looks[-1].second
    slack = 0.5 / LOOKS
    return [look for look in looks if window[0] - slack <= look.second / whole <= window[1] + slack]


def _tallies(
    server: Server, models: Iterable[str], counted: Counter[tuple[str, str]]
) -> dict[tuple[str, str], tuple[int, int | None, int]]:
    """By model and outcome, once all requests have ended: what the clients, the statistics and the metrics tell."""
    page = server.metrics()
    tallies: dict[tuple[str, str], tuple[int, int | None, int]] = {}
    for model in models:
        told = server.statistics(model)["inference_stats"]
        failed = {reason: int(_series(page, FAILURE, model, reason)) for reason in REASONS}
        succeeded = int(_series(page, SUCCESS, model))
        tallies[model, "success"] = (counted[model, "success"], told["success"]["count"], succeeded)
        all_failed = sum(counted[model, reason] for reason in REASONS)
        tallies[model, "failure"] = (all_failed, told["fail"]["count"], sum(failed.values()))
        for reason, count in failed.items():
            tallies[model, reason] = (counted[model, reason], None, count)
    return tallies


def _series(page: str, name: str, model: str, reason: str = "") -> float:
    """One series of the metrics page."""
    for line in page.splitlines():
        if line.startswith(f"{name}{{") and f'model="{model}"' in line and (not reason or f'reason="{reason}"' in line):
            return float(line.rpartition(" ")[2])
    raise SystemExit(f"the metrics do not tell {name} of '{model}'")


def main() -> None:
    flags = parser(__doc__)
    flags.add_argument("--minutes", type=float, metavar="M", help=f"the whole time, {MINUTES:g} unless told otherwise")
    given = flags.parse_args()
    seconds = 60 * given.minutes if given.minutes else given.seconds
    options = Options(given.quick, seconds, given.repeats, given.save)
    draw = report.load_plot("draw_soak")  # before minutes are spent on measuring
    outcome = run_part(PART, measure, options)
    draw({PART: outcome}, (RESULTS if options.save else BUILD) / "soak.png")


if __name__ == "__main__":
    main()
