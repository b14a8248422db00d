"""A real ``kushi serve`` in a process of its own, as the tests start, watch and stop it.

Nothing here sleeps to wait: the log is read line by line by one thread, and whoever waits for a line is woken by it.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from tests.processes import thread_states
from tests.raw_http import Address, Connection, Headers, Response, fetch
from tests.waiting import Late, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "DRAINING",
    "GRPC_LINE",
    "ROOT",
    "STARTED",
    "Server",
    "executes",
    "free_port",
    "labelled",
    "metrics",
    "run_to_end",
]

ROOT: Final = Path(__file__).resolve().parent.parent
START_S: Final = 45.0
STOP_S: Final = 45.0
PROCESSES: Final = 16
"""The most of one run that have ports of their own"""

HTTP_LINE: Final = re.compile(r"Started HTTPService at \S*?:(\d+)")
DRAINING: Final = re.compile("Waiting for in-flight requests to complete")
GRPC_LINE: Final = re.compile(r"Started GRPCInferenceService at \S*?:(\d+)")
METRICS_LINE: Final = re.compile(r"Started Metrics Service at \S*?:(\d+)")


STARTED: Final[WeakSet[Server]] = WeakSet()
"""By this process, and in use"""


def executes(pid: int, model: str) -> bool:
    """Whether the first instance of a model runs, other than waiting for work"""
    return (f"{model}_0", "R") in thread_states(pid)


def free_port() -> int:
    """
    A port for a server that cannot choose one itself, of those that the system gives to nobody meanwhile, nor another
    process of this run.
    """
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % PROCESSES
    for port in SystemRandom().sample(range(15_000 + process, 32_000, PROCESSES), 100):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")


def environment() -> dict[str, str]:
    """No settings but that gRPC, which nobody has to ask for, takes a free port"""
    plain = {key: value for key, value in os.environ.items() if not key.startswith("KUSHI_")}
    return {**plain, "KUSHI_GRPC_ADDRESS": "127.0.0.1", "KUSHI_GRPC_PORT": "0"}


def command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "runners", "serve", *arguments]


def run_to_end(*arguments: str, timeout: float = START_S) -> subprocess.CompletedProcess[str]:
    """``kushi serve`` that is expected to end by itself; its two streams come back as one."""
    return subprocess.run(
        command(arguments),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )


@dataclass
class Log:
    """Lines of the process so far; ``wait_for`` is woken by each of them and by the end."""

    lines: list[str] = field(default_factory=list)
    ended: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)

    def add(self, line: str) -> None:
        with self.changed:
            self.lines.append(line)
            self.changed.notify_all()

    def end(self) -> None:
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def wait_for(self, pattern: re.Pattern[str], timeout: float) -> re.Match[str]:
        def found() -> re.Match[str] | None:
            return next((match for line in self.lines if (match := pattern.search(line))), None)

        with self.changed:
            self.changed.wait_for(lambda: found() is not None or self.ended, timeout)
            match, ended = found(), self.ended
        if match is None:
            text = f"no line like {pattern.pattern!r} in the server's log:\n{self.text()}"
            raise AssertionError(f"it has ended, and {text}") if ended else Late(f"within {timeout:.0f} s {text}")
        return match

    def text(self) -> str:
        return "\n".join(self.lines)


class Server:
    """One running server. Use ``start``; whoever started it stops it."""

    def __init__(self, arguments: Sequence[str], inherited: Sequence[int] = ()) -> None:
        self.process = subprocess.Popen(
            command(arguments),
            pass_fds=inherited,
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        STARTED.add(self)
        self._is_told = False
        self.log = Log()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.repository: Path | None = None
        self.http: tuple[str, int] = ("127.0.0.1", 0)
        self.http_socket = ""
        self.metrics_address: tuple[str, int] = ("127.0.0.1", 0)

    @property
    def url(self) -> str:
        return f"http://{self.http[0]}:{self.http[1]}"

    @classmethod
    def start(
        cls, repository: Path | None, *arguments: str, ready: bool = True, inherited: Sequence[int] = ()
    ) -> Server:
        """Starts on ports of the system's choice; answers when the server listens and, if asked, is ready."""
        given = [] if repository is None else [f"--model-repository={repository}"]
        addresses = ["--http-address=127.0.0.1", "--http-port=0", "--metrics-address=127.0.0.1", "--metrics-port=0"]
        server = cls([*given, *addresses, *arguments], inherited)
        server.repository = repository
        try:
            server.http = ("127.0.0.1", int(server.log.wait_for(HTTP_LINE, START_S).group(1)))
            server.metrics_address = ("127.0.0.1", int(server.log.wait_for(METRICS_LINE, START_S).group(1)))
            if ready:
                eventually(server.is_ready, "the server is ready", START_S)
        except BaseException:
            server.kill()
            raise
        return server

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        with stream:
            for line in stream:
                self.log.add(line.rstrip("\n"))
        self.log.end()

    def is_ready(self) -> bool:
        return self.get("/v2/health/ready").status == 200

    @property
    def pid(self) -> int:
        return self.process.pid

    def connect(self, timeout: float = 30.0) -> Connection:
        return Connection(self.http, timeout)

    def get(self, path: str, headers: Headers = ()) -> Response:
        return fetch(self.http, "GET", path, headers)

    def post(self, path: str, body: bytes, headers: Headers = ()) -> Response:
        return fetch(self.http, "POST", path, headers, body)

    def metrics(self) -> dict[str, float]:
        return metrics(self.metrics_address)

    def memory_kib(self, entry: str = "VmRSS") -> int:
        """A line of the process's status, in KiB."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        match = re.search(rf"^{entry}:\s+(\d+) kB", status, re.MULTILINE)
        assert match is not None
        return int(match.group(1))

    @contextmanager
    def grows_by_less_than(self, size_kib: int) -> Iterator[None]:
        """
        Within, the process has never had so much more memory than before. It is to be a server of the test's own: what
        others have made it keep hides what is taken here.
        """
        # the peak of its whole life, which never falls, would hide everything below
        Path(f"/proc/{self.pid}/clear_refs").write_text("5", encoding="ascii")
        before = self.memory_kib()
        yield
        grown = self.memory_kib("VmHWM") - before
        assert grown < size_kib, f"the server grew by {grown} KiB"

    def freeze(self) -> None:
        """Stops every thread: each takes the signal when it is its turn, which may be after another request"""
        self.process.send_signal(signal.SIGSTOP)
        eventually(lambda: {state for _, state in thread_states(self.pid)} == {"T"}, "a frozen server")

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    @property
    def has_died(self) -> bool:
        """Nobody has asked it to end"""
        return not self._is_told and self.process.poll() is not None

    def terminate(self) -> None:
        self._is_told = True
        self.process.send_signal(signal.SIGTERM)

    def wait(self, timeout: float = STOP_S) -> int:
        self._is_told = True
        code = self.process.wait(timeout)
        self._reader.join(STOP_S)
        return code

    def stop(self) -> int:
        """Asks the server to end and answers its exit code."""
        if self.process.poll() is None:
            self.terminate()
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        self._is_told = True
        self.process.kill()
        self.wait()


def metrics(address: Address) -> dict[str, float]:
    """Every series of the metrics page by its name and labels as printed."""
    response = fetch(address, "GET", "/metrics")
    assert response.status == 200, response
    found: dict[str, float] = {}
    for line in response.body.decode().splitlines():
        if line and not line.startswith("#"):
            series, value = line.rsplit(" ", 1)
            found[series] = float(value)
    return found


def labelled(values: Mapping[str, float], name: str, **labels: str) -> float:
    """Value of one series, whatever the order of its labels."""
    for series, value in values.items():
        match = re.fullmatch(r"(\w+)(?:\{(.*)\})?", series)
        assert match is not None, series
        found = dict(re.findall(r'(\w+)="([^"]*)"', match.group(2) or ""))
        if match.group(1) == name and found == labels:
            return value
    raise AssertionError(f"no series {name} with labels {labels}")
