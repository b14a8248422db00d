"""What does a repository that changes cost?

    python -m benchmarks.changes [--only polls|index|writing|reloads] [--quick] [--seconds S] [--repeats N] [--save]

* polls: CPU of a server that looks at 300 models each second, of which none changes.
* index: the repository index of 10,000 models, and the start of 1,000.
* writing: a model of 1 GB whose file takes two minutes to be written, with pauses of three polls: it is loaded once.
* reloads: constant load on two models, of which any answer but a result ends the program, while one of them is reloaded
  twice a second, now and then with a broken file, and of twenty others four a second are loaded and unloaded; by turns
  with windows without. `--repeats` says how often.

`writing` needs 3 GB of memory and 1 GB of disk.
"""

from __future__ import annotations

import json
import shutil
import statistics
import threading
import time
from collections.abc import Callable
from typing import Final

from benchmarks import loadgen, processes
from benchmarks.loadgen import SteadyRun
from benchmarks.models import Entry, write_repository
from benchmarks.options import BUILD, Options, Plan, parser
from benchmarks.outcome import Check, Outcome, Table, progress, run_part
from benchmarks.payload import binary_request
from benchmarks.server import Server
from tests.models import large

__all__ = ["PART", "measure"]

PART: Final = "changes"
REPOSITORY: Final = BUILD / "repository"
POLL: Final = ("--model-control-mode=poll", "--repository-poll-secs=1")
EXPLICIT: Final = "--model-control-mode=explicit"
MB: Final = 1_000_000
OTHERS: Final = 20
BROKEN_EACH: Final = 20
RATE: Final = 300.0
WINDOW_S: Final = 5.0

_Row = tuple[str, str]
_Part = tuple[list[_Row], list[Check]]


def polls(options: Options) -> _Part:
    models = 300
    seconds = options.plan(Plan(20, 1), Plan(5, 1)).seconds
    write_repository(REPOSITORY, [Entry("add_sub", f"m{number}") for number in range(models)])
    shares = {}
    for name, flags in (("none", ()), ("poll", POLL)):
        progress(PART, f"{models} models, control mode {name}, {seconds + 6:.0f} s")
        with Server(REPOSITORY, flags=flags) as server:
            time.sleep(5)
            before = processes.cpu_seconds(server.pid)
            time.sleep(seconds)
            shares[name] = 100 * (processes.cpu_seconds(server.pid) - before) / seconds
    rows = [(f"CPU of one core, {models} models, `{name}`", f"{share:.2f} %") for name, share in shares.items()]
    return rows, [Check(f"CPU of a poll of {models} models at 1 s", shares["poll"], "at most", 2, " %")]


def index(options: Options) -> _Part:
    listed, started = 10_000, 1000
    repeats = options.plan(Plan(0, 20), Plan(0, 5)).repeats
    progress(PART, f"{listed} models in the index, {started} models loaded")
    write_repository(REPOSITORY, [Entry("add_sub", "m0")])
    for number in range(1, listed):
        (REPOSITORY / f"m{number}" / "1").mkdir(parents=True)
    with Server(REPOSITORY, flags=(EXPLICIT, "--load-model=m0")) as server:
        times = []
        answer = b""
        for _ in range(repeats):
            begun = time.perf_counter()
            _, answer = server.ask("index")
            times.append(1000 * (time.perf_counter() - begun))
        if len(json.loads(answer)) != listed:
            raise SystemExit(f"the index names {len(json.loads(answer))} models")
    write_repository(REPOSITORY, [Entry("add_sub", f"m{number}") for number in range(started)])
    with Server(REPOSITORY) as server:
        ready = server.ready_after_s
    took = statistics.median(times)
    rows = [(f"index of {listed} models, median", f"{took:.1f} ms"), (f"start with {started} models", f"{ready:.1f} s")]
    checks = [
        Check(f"index of {listed} models", took, "at most", 50, " ms"),
        Check(f"start with {started} models", ready, "at most", 10, " s"),
    ]
    return rows, checks


def writing(options: Options) -> _Part:
    size, pauses = (100 * MB, 2) if options.quick else (1000 * MB, 5)
    progress(PART, f"a file of {size // MB} MB, written at 10 MB/s: {size / 10 / MB + 3 * pauses:.0f} s")
    whole = large(size).SerializeToString()
    write_repository(REPOSITORY, [Entry("add_sub", "other")])
    with Server(REPOSITORY, flags=POLL) as server:
        folder = REPOSITORY / "written" / "1"
        folder.mkdir(parents=True)
        chunk, begun = MB, time.monotonic()
        pause_each = len(whole) // (pauses + 1)
        with (folder / "model.onnx").open("wb") as file:
            for at in range(0, len(whole), chunk):
                file.write(whole[at : at + chunk])
                file.flush()
                paused = 3.0 * min(at // pause_each, pauses)
                time.sleep(max(0.0, begun + at / 10 / MB + paused - time.monotonic()))
        written = time.monotonic()
        while b'"written","version":"1","state":"READY"' not in server.ask("index")[1]:
            if time.monotonic() - written > 60:
                raise SystemExit("the model was not loaded")
            time.sleep(0.05)
        after = time.monotonic() - written
        log = server.log()
    shutil.rmtree(REPOSITORY)
    halves = log.count("loading: written:1") - 1 + log.count("failed to load 'written'")
    rows = [(f"a file of {size // MB} MB, written for {written - begun:.0f} s: ready after its end", f"{after:.1f} s")]
    return rows, [Check("loads of the half-written file", halves, "at most", 0)]


def reloads(options: Options) -> _Part:
    repeats = options.plan(Plan(0, 200), Plan(0, 20)).repeats
    loadgen.build()
    others = [f"other{number}" for number in range(OTHERS)]
    write_repository(REPOSITORY, [Entry("mlp", name) for name in ("changes", "stays", *others)])
    file = REPOSITORY / "changes/1/model.onnx"
    good = file.read_bytes()
    with Server(REPOSITORY, flags=(EXPLICIT, "--load-model=changes", "--load-model=stays")) as server:
        progress(PART, f"{repeats} reloads under load, about {20 + 1.3 * repeats:.0f} s")

        def change(number: int) -> None:
            is_broken = number % BROKEN_EACH == BROKEN_EACH - 1
            # a new file: that of all models may be one
            new = file.with_name(".new")
            new.write_bytes(b"broken" if is_broken else good)
            new.rename(file)
            status, body = server.ask("models/changes/load")
            if (status == 200) == is_broken:
                raise SystemExit(f"load {number} was answered with {status}: {body[:200]!r}")

        def rotate(number: int) -> None:
            for verb in ("load", "unload"):
                status, body = server.ask(f"models/{others[number % OTHERS]}/{verb}")
                if status != 200:
                    raise SystemExit(f"{verb} of a model was answered with {status}: {body[:200]!r}")

        for number in range(2 * BROKEN_EACH):
            change(number)
            rotate(number)
        changing = _Paced(change, 0.5)
        rotating = _Paced(rotate, 0.25)
        answered = 0
        latencies: dict[str, list[float]] = {"quiet": [], "changing": []}
        memory = []
        while changing.done < repeats:
            # by turns: what the machine does beside is in both
            latencies["quiet"].append(_window(server)[1])
            memory.append(_rss_mb(server))
            with changing, rotating:
                count, latency = _window(server)
            answered += count
            latencies["changing"].append(latency)
        memory.append(_rss_mb(server))
    third = max(1, len(memory) // 3)
    before, behind = statistics.median(memory[:third]), statistics.median(memory[-third:])
    quiet, meanwhile = (statistics.median(each) for each in latencies.values())
    rows = [
        (f"requests of the model that is reloaded, {changing.done} times", f"{answered}, 0 failed"),
        ("p99 of the other model: quiet, meanwhile", f"{quiet:.0f}, {meanwhile:.0f} µs"),
        ("resident memory: first third of the time, last third", f"{before:.0f}, {behind:.0f} MB"),
    ]
    checks = [
        Check("p99 of a model that is not touched ÷ without", meanwhile / quiet, "at most", 1.5),
        Check("resident memory, last third ÷ first", behind / before, "at most", 1.05),
    ]
    return rows, checks


def _window(server: Server) -> tuple[int, float]:
    """Constant load on both: how many requests the model that changes has answered, and p99 of the other one in µs"""
    steady = SteadyRun(server.port, binary_request("changes", "mlp"), rate=RATE, connections=4, seconds=WINDOW_S)
    payload, seconds = binary_request("stays", "mlp"), WINDOW_S - 1
    run = loadgen.open_loop(server.port, payload, rate=RATE, connections=4, seconds=seconds, warmup=0.5)
    return steady.answered(), run.latency_us.p99


def _rss_mb(server: Server) -> float:
    return sum(processes.rss_mb(pid) for pid in server.pids())


class _Paced:
    """Does something every so many seconds, within each `with`"""

    def __init__(self, work: Callable[[int], None], seconds: float) -> None:
        self._work = work
        self._seconds = seconds
        self._failure: BaseException | None = None
        self.done = 0

    def __enter__(self) -> None:
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        if self._failure:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._ends.wait(self._seconds):
                self._work(self.done)
                self.done += 1
        except BaseException as failure:  # noqa: BLE001 - whoever waits raises it
            self._failure = failure


PARTS: Final[dict[str, Callable[[Options], _Part]]] = {
    "polls": polls,
    "index": index,
    "writing": writing,
    "reloads": reloads,
}


def measure(options: Options, only: str = "") -> Outcome:
    rows: list[_Row] = []
    checks: list[Check] = []
    for name, part in PARTS.items():
        if only in ("", name):
            more_rows, more_checks = part(options)
            rows += more_rows
            checks += more_checks
    return Outcome(
        PART,
        "A repository that changes",
        "small ONNX models, files in the page cache, unpinned",
        Table(("", "measured"), tuple(rows)),
        tuple(checks),
        figures={check.what: check.value for check in checks},
    )


def main() -> None:
    flags = parser(__doc__)
    flags.add_argument("--only", choices=PARTS, default="", help="this part alone")
    given = flags.parse_args()
    options = Options(given.quick, given.seconds, given.repeats, given.save)
    run_part(PART, lambda options: measure(options, given.only), options)


if __name__ == "__main__":
    main()
