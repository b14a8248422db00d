"""The document reader beside RapidOCR's own pipeline, alone and as a service of BentoML, and beside Tesseract.

    python -m benchmarks.reading [--quick] [--seconds S] [--repeats N] [--save]        make bench-reading

Three sets of pages whose words are known (benchmarks/reading_pages.py). A word is right where the answer has it, as
often as the page does, letter by letter. First each page is read by itself, by all in turn, one thread each; then by
RapidOCR and by the service with all cores; then eight clients send pages to the two services for a minute.
"""

from __future__ import annotations

import json
import os
import re
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

import httpx

from benchmarks import machine, processes
from benchmarks.options import BUILD, ROOT, Options, Plan, parse
from benchmarks.outcome import Check, Outcome, Table, progress, run_part
from benchmarks.reading_pages import Page, degraded, manuals, rendered
from benchmarks.server import HOST, Program, free_port

__all__ = ["PART", "measure"]

PART: Final = "reading"
CLIENTS: Final = 8
PAGES, PAGES_QUICK = 12, 3
"""Of each set"""
PEERS: Final = ROOT / ".venv-ocr/bin"
OURS, RAPID, TESSERACT = "Kushi", "RapidOCR", "Tesseract"
LEADERS: Final = re.compile(r"(?:\s*[.·…]){3,}")
"""Dots from a title to the number of its page"""
ENGINE: Final = "runners serve"
PATIENCE_SECONDS: Final = 300.0
NOTES: Final = (
    "CPU: of all processes, supervisor, workers and engine included. RapidOCR's service has a worker for each core.",
    "RapidOCR runs the same three networks. Tesseract reads with its own, one process for each page.",
)


@dataclass(frozen=True)
class Read:
    """One page"""

    right: float
    """Of its words"""
    seconds: float
    cpu_seconds: float


@dataclass
class Crowd:
    """Many clients"""

    pages: int = 0
    failed: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    models_cpu_seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)

    @property
    def pages_per_cpu_second(self) -> float:
        return self.pages / self.cpu_seconds


class Service:
    """One of the two, with what its processes have taken"""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._client = httpx.Client(base_url=f"http://{HOST}:{program.port}", timeout=PATIENCE_SECONDS)

    def read(self, page: Page) -> Any:  # noqa: ANN401 - JSON
        answer = self._client.post("/read", files={"document": ("page.png", page.png, "image/png")})
        return answer.raise_for_status().json()

    def cpu_seconds(self, name: str = "") -> float:
        """Of the processes whose command has that word"""
        return sum(processes.cpu_seconds(pid) for pid in self._program.pids() if name in _command(pid))


class Script:
    """RapidOCR in a process of its own"""

    def __init__(self, threads: int) -> None:
        command = [str(PEERS / "python"), str(ROOT / "benchmarks/peers/rapidocr_pages.py"), str(threads)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.terminate()
        self._process.wait()

    def read(self, page: Page) -> Read:
        _pipe(self._process.stdin).write(f"{_file(page)}\n")
        _pipe(self._process.stdin).flush()
        answer = self._answer()
        return Read(_right(page, " ".join(answer["texts"])), answer["seconds"], answer["cpu_seconds"])

    def _answer(self) -> Any:  # noqa: ANN401 - JSON
        return json.loads(_pipe(self._process.stdout).readline())


def measure(options: Options) -> Outcome:
    plan = options.plan(full=Plan(60, 1), quick=Plan(15, 1))
    count = PAGES_QUICK if options.quick else PAGES
    if not (PEERS / "python").exists():
        raise SystemExit("RapidOCR is not installed: make .venv-ocr/.synced")
    progress(PART, f"three sets of {count} pages")
    sets = {"rendered": rendered(count), "degraded": degraded(count), "manuals": manuals(count)}
    progress(PART, "each page by itself, by all in turn")
    with _ours() as service, Script(1) as script:
        service.read(sets["rendered"][0])
        alone = {name: [_by_all(page, service, script) for page in pages] for name, pages in sets.items()}
    progress(PART, "the same with all cores")
    pages = [page for of_set in sets.values() for page in of_set]
    with _ours() as service, Script(-1) as script:
        service.read(pages[0])
        script.read(pages[0])
        pairs = [(_by_us(page, service), script.read(page)) for _ in range(plan.repeats) for page in pages]
    crowds = dict[str, Crowd]()
    for name, program in ((OURS, _ours), (RAPID, _theirs)):
        progress(PART, f"{CLIENTS} clients, {plan.seconds:g} s: {name}")
        with program() as service:
            crowds[name] = _crowd(service, pages, plan.seconds)
    return _outcome(plan, count, alone, pairs, crowds)


@contextmanager
def _ours() -> Iterator[Service]:
    with _serving(sys.executable, "service:Kushi", "reading-ours.log") as service:
        yield service


@contextmanager
def _theirs() -> Iterator[Service]:
    with _serving(str(PEERS / "python"), "benchmarks.peers.rapidocr_service:Reader", "reading-theirs.log") as service:
        yield service


@contextmanager
def _serving(python: str, what: str, log: str) -> Iterator[Service]:
    port = free_port()
    command = [python, "-m", "bentoml", "serve", what, "--host", HOST, "--port", str(port)]
    with Program(command, port, "/readyz", {"BENTOML_DO_NOT_TRACK": "1"}, look_s=0.02, log=log) as program:
        yield Service(program)


def _by_all(page: Page, service: Service, script: Script) -> dict[str, Read]:
    return {OURS: _by_us(page, service), RAPID: script.read(page), TESSERACT: _by_tesseract(page)}


def _by_us(page: Page, service: Service) -> Read:
    cpu, began = service.cpu_seconds(), time.perf_counter()
    answer = service.read(page)
    seconds = time.perf_counter() - began
    return Read(_right(page, answer["text"]), seconds, service.cpu_seconds() - cpu)


def _by_tesseract(page: Page) -> Read:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = ["tesseract", str(_file(page)), "-"]
    environment = {**os.environ, "OMP_THREAD_LIMIT": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Read(_right(page, done.stdout), seconds, cpu)


def _crowd(service: Service, pages: Sequence[Page], seconds: float) -> Crowd:
    service.read(pages[0])
    crowd, turn = Crowd(), threading.Lock()
    left = iter(range(10**9))
    began, cpu, models = time.perf_counter(), service.cpu_seconds(), service.cpu_seconds(ENGINE)

    def ask() -> None:
        while time.perf_counter() - began < seconds:
            with turn:
                page = pages[next(left) % len(pages)]
            asked = time.perf_counter()
            try:
                service.read(page)
            except httpx.HTTPError:
                crowd.failed += 1
            else:
                with turn:
                    crowd.pages += 1
                    crowd.latencies.append(time.perf_counter() - asked)

    clients = [threading.Thread(target=ask) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    crowd.seconds = time.perf_counter() - began
    crowd.cpu_seconds = service.cpu_seconds() - cpu
    crowd.models_cpu_seconds = service.cpu_seconds(ENGINE) - models
    return crowd


def _right(page: Page, text: str) -> float:
    wanted = Counter(_words(" ".join(page.words)))
    return sum((wanted & Counter(_words(text))).values()) / wanted.total()


def _words(text: str) -> list[str]:
    return [word for word in LEADERS.sub(" ", text).split() if any(letter.isalnum() for letter in word)]


def _file(page: Page) -> Path:
    path = BUILD / "pages" / f"{page.name.replace(' ', '-')}.png"
    if not path.exists() or path.read_bytes() != page.png:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(page.png)
    return path


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _pipe(pipe: IO[str] | None) -> IO[str]:
    if pipe is None:
        raise RuntimeError("the script has no pipes")
    return pipe


def _outcome(
    plan: Plan,
    count: int,
    alone: dict[str, list[dict[str, Read]]],
    pairs: list[tuple[Read, Read]],
    crowds: dict[str, Crowd],
) -> Outcome:
    rows, checks = list[tuple[str, ...]](), list[Check]()
    for name, reads in alone.items():
        right = {reader: statistics.fmean(read[reader].right for read in reads) for reader in (OURS, RAPID, TESSERACT)}
        for reader, share in right.items():
            cpu = statistics.fmean(read[reader].cpu_seconds for read in reads)
            ratio = statistics.median(read[reader].cpu_seconds / read[RAPID].cpu_seconds for read in reads)
            rows.append((name, reader, f"{share:.4f}", f"{cpu:.2f}", f"{ratio:.2f}"))
        checks.append(Check(f"{name}: words right ÷ RapidOCR's", right[OURS] / right[RAPID], "at least", 0.995))
    ours, theirs = crowds[OURS], crowds[RAPID]
    for name, crowd in crowds.items():
        p50 = f"p50 {statistics.median(crowd.latencies):.1f} s"
        rows.append((f"{CLIENTS} clients", f"{name}, as a service", p50, f"{1 / crowd.pages_per_cpu_second:.2f}", ""))
    checks += [
        Check(
            f"{CLIENTS} clients: pages per CPU second ÷ a service on RapidOCR",
            ours.pages_per_cpu_second / theirs.pages_per_cpu_second,
            "at least",
            1.3,
        ),
        Check(f"{CLIENTS} clients: failed", ours.failed, "at most", 0),
        Check(
            "one page, all cores: p50 ÷ RapidOCR in a script",
            statistics.median(our.seconds / their.seconds for our, their in pairs),
            "at most",
            1.0,
        ),
        Check("share of the CPU that models take", ours.models_cpu_seconds / ours.cpu_seconds, "at least", 0.7),
    ]
    throughput = " and ".join(
        f"{name} {crowd.pages / crowd.seconds:.2f} ({crowd.failed} failed)" for name, crowd in crowds.items()
    )
    return Outcome(
        PART,
        "The document reader, beside RapidOCR and Tesseract",
        f"three sets of {count} pages; each by itself with one thread each; {CLIENTS} clients for {plan.seconds:g} s",
        Table(("pages", "reader", "words right", "CPU s a page", "÷ RapidOCR"), tuple(rows)),
        tuple(checks),
        notes=(*NOTES, f"Pages per second, {CLIENTS} clients: {throughput}.", *machine.doubts(0.0)),
        figures={
            "alone": {
                name: [{who: asdict(read) for who, read in one.items()} for one in of] for name, of in alone.items()
            },
            "pairs": [[asdict(read) for read in pair] for pair in pairs],
            "crowds": {name: asdict(crowd) for name, crowd in crowds.items()},
        },
    )


def main() -> None:
    run_part(PART, measure, parse(__doc__))


if __name__ == "__main__":
    main()
