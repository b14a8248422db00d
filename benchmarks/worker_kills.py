"""A Python model whose process is killed every second, under load: does each request end once, and how soon?

    python -m benchmarks.worker_kills [--quick] [--seconds S] [--save]

Eight clients, each with a request on its way at all times; a minute, or ten seconds with --quick.
"""

from __future__ import annotations

import http.client
import os
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import processes
from benchmarks.options import BUILD, Options, Plan, parse
from benchmarks.outcome import Check, Outcome, Table, progress, run_part
from benchmarks.payload import binary_request
from benchmarks.python_models import write_repositories
from benchmarks.server import HOST, Server

__all__ = ["PART", "measure"]

PART = "worker_kills"
CLIENTS = 8
PATIENCE_S = 30.0
NOTES = ("Ended otherwise: no answer within 30 s, or a connection that was closed under a request.",)


@dataclass
class Counts:
    statuses: Counter[int] = field(default_factory=Counter)
    without_end: int = 0
    slowest_s: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


def measure(options: Options) -> Outcome:
    plan = options.plan(full=Plan(60, 1), quick=Plan(10, 1))
    progress(PART, f"{plan.seconds:.0f} s")
    repository, _ = write_repositories(BUILD / PART)
    payload = binary_request("sum", "add_sub")
    counts, stopping = Counts(), threading.Event()
    with Server(repository) as server:
        server.answer(payload)
        memory_before = _memories(server.pid)
        clients = [threading.Thread(target=_ask, args=(server, counts, stopping)) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        kills = _kill(server, plan.seconds)
        stopping.set()
        for client in clients:
            client.join()
        # the last one that was killed may have had this one
        time.sleep(1)
        server.answer(payload)
        left = _memories(server.pid) - memory_before
    good, bad = counts.statuses[200], counts.statuses.total() - counts.statuses[200]
    row = (f"{kills}", f"{good:,}", f"{bad}", f"{counts.without_end}", f"{counts.slowest_s:.2f}", f"{max(0, left)}")
    return Outcome(
        PART,
        "A Python model whose process is killed every second",
        f"{CLIENTS} clients, {plan.seconds:g} s",
        Table(("kills", "answers", "errors", "ended otherwise", "slowest, s", "shared memory left"), (row,)),
        (
            Check("requests that end otherwise than by one answer", counts.without_end, "at most", 0),
            Check("slowest answer", counts.slowest_s, "at most", 3, " s"),
            Check("shared memory left", max(0, left), "at most", 0),
        ),
        NOTES,
        {"statuses": dict(counts.statuses), "kills": kills},
    )


def _ask(server: Server, counts: Counts, stopping: threading.Event) -> None:
    payload = binary_request("sum", "add_sub")
    connection = http.client.HTTPConnection(HOST, server.port, timeout=PATIENCE_S)
    while not stopping.is_set():
        begun = time.monotonic()
        try:
            connection.request("POST", payload.path, payload.body, payload.headers)
            response = connection.getresponse()
            response.read()
            status = response.status
        except (OSError, http.client.HTTPException):
            connection.close()
            status = None
        with counts.lock:
            counts.slowest_s = max(counts.slowest_s, time.monotonic() - begun)
            if status is None:
                counts.without_end += 1
            else:
                counts.statuses[status] += 1
    connection.close()


def _kill(server: Server, seconds: float) -> int:
    kills = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(1)
        for pid in processes.tree(server.pid)[1:]:
            if Path(f"/proc/{pid}/cwd").readlink() == BUILD / PART / "kushi" / "sum":
                os.kill(pid, signal.SIGKILL)
                kills += 1
    return kills


def _memories(pid: int) -> int:
    """The shared memory that a process has, by its descriptors."""
    found = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found += str(descriptor.readlink()).startswith("/memfd:")
        except OSError:  # closed meanwhile
            continue
    return found


if __name__ == "__main__":
    run_part(PART, measure, parse(__doc__))
