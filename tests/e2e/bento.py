"""A real ``bentoml serve`` with directories of its own, as the tests start, watch and stop it.

All processes of one service have its directory in their environment. So those are found whose parent died, and
the end of a service is known to be complete: exit code 0, no process, no socket.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import nullcontext, suppress
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import WeakSet

import httpx

from tests.raw_http import Connection, Headers, Response, fetch
from tests.serving import ROOT, Log, environment, free_port, labelled, metrics
from tests.small_service import FOLDER
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

__all__ = ["STARTED", "Bento", "service_of"]

START_S: Final = 45.0
STOP_S: Final = 45.0
ANSWER_S: Final = 10.0


STARTED: Final[WeakSet[Bento]] = WeakSet()
"""By this process, and in use"""


class Bento:
    """One running service. Whoever makes it stops it, or uses it as a context"""

    def __init__(
        self,
        folder: Path = FOLDER,
        *arguments: str,
        port: int = 0,
        output: Path | None = None,
        python: str | Path = sys.executable,
        **variables: str,
    ) -> None:
        """
        Starts what `service.py` in the folder defines, or the arguments of `bentoml serve` name; what it writes is kept
        in `log`, or goes to `output`
        """
        # Sockets have short names; what is said of one is longer than a WebSocket's reason may be.
        self.runtime = Path(tempfile.mkdtemp(prefix="bento-of-some-test-"))
        self._mark = f"KEPT_BY_TEST={self.runtime}".encode()
        self._told = False
        self.port = port or free_port()
        own = {
            "KEPT_BY_TEST": str(self.runtime),
            "BENTOML_DO_NOT_TRACK": "True",
            "BENTOML_HOME": str(self.runtime / "home"),
            "TMPDIR": str(self.runtime),
            "XDG_RUNTIME_DIR": str(self.runtime),
            "PYTHONPATH": str(ROOT),
        }
        with output.open("wb") if output else nullcontext(subprocess.PIPE) as written:
            self.process = subprocess.Popen(
                [python, "-m", "bentoml", "serve", "--host", "127.0.0.1", "--port", str(self.port), *arguments],
                cwd=folder,
                env={**environment(), **own, **variables},
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        STARTED.add(self)
        self.log = Log()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()

    def until_ready(self) -> Self:
        try:
            eventually(self._is_ready_or_ended, "the service is ready", START_S)
            assert self.process.poll() is None, "it has ended"
        except AssertionError as error:
            self.kill()
            raise type(error)(f"{error}\n{self.log.text()}") from None
        except BaseException:
            self.kill()
            raise
        return self

    def terminate(self) -> None:
        """Asks for the end, once"""
        if not self._told:
            self.tell(signal.SIGTERM)

    def tell(self, number: signal.Signals) -> None:
        """Asks for the end with that signal; an interrupt reaches all processes, as from a terminal"""
        told = [pid for pid, _ in self._members()] if number == signal.SIGINT else [self.process.pid]
        for pid in told:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        self._told = True

    def crash(self) -> None:
        """Kills all of its processes at the same moment, and leaves what they leave"""
        for pid, _ in self._members():
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        eventually(lambda: not self._members(), "all processes have ended")

    def stop_reading(self) -> None:
        """Nobody reads any more what it writes"""
        assert self.process.stdout is not None
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), self.process.stdout.fileno())

    def stop(self) -> None:
        """Ends the service as a supervisor does, and looks that nothing is left"""
        self.terminate()
        try:
            code = self.process.wait(STOP_S)
            assert code == 0, self.log.text()
            assert self.left() == ([], []), self.log.text()
        finally:
            self.kill()

    def left(self) -> tuple[list[list[str]], list[Path]]:
        """Processes, and sockets and pipes that are there"""
        # processes that end may remove a folder meanwhile, which os.walk does not mind
        paths = [Path(folder, name) for folder, _, names in os.walk(self.runtime) for name in names]
        left = [path for path in paths if path.is_socket() or path.is_fifo()]
        return [words for _, words in self._members()], left

    def kill(self) -> None:
        """Ends whatever is there"""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid, _ in self._members():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._reader.join(STOP_S)
        shutil.rmtree(self.runtime, ignore_errors=True)

    # --- its processes ---

    @property
    def engine(self) -> int:
        """The process that runs the models"""
        (pid,) = self.engines()
        return pid

    def engines(self) -> list[int]:
        return [pid for pid, words in self._members() if any(word.startswith("--drain-fd=") for word in words)]

    def words_of(self, process: int) -> list[str]:
        """What the list of processes shows of one"""
        return next(words for pid, words in self._members() if pid == process)

    def workers(self, service: str) -> list[int]:
        """The processes of a service, without the one that starts them"""
        marks = "--service-name", service
        return [pid for pid, words in self._members() if marks in pairwise(words)]

    def attends(self, process: int) -> bool:
        """Whether a worker, or the one that keeps the engine, has come so far that it holds the engine's lifeline"""
        # It may end meanwhile.
        with suppress(OSError):
            return any(_target(link).endswith(".lifeline") for link in Path(f"/proc/{process}/fd").iterdir())
        return False

    def worker_of(self, connection: Connection) -> int:
        """The process at the other end, once one has accepted the connection"""
        found: list[int] = []

        def is_accepted() -> bool:
            found.extend(self._acceptors(connection))
            return bool(found)

        eventually(is_accepted, "somebody has accepted the connection")
        return found[0]

    def _acceptors(self, connection: Connection) -> Iterator[int]:
        ours = connection.socket.getsockname()[1]
        for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            ends = [int(address.partition(":")[2], 16) for address in fields[1:3]]
            if ends == [self.port, ours]:
                mark = f"socket:[{fields[9]}]"
                for pid, _ in self._members():
                    # a process may end meanwhile
                    with suppress(OSError):
                        if any(_target(link) == mark for link in Path(f"/proc/{pid}/fd").iterdir()):
                            yield pid

    def watches_files(self) -> bool:
        """Whether one of its processes hears of changed files, as with --reload once it has started"""
        for pid, _ in self._members():
            # a process may end meanwhile
            with suppress(OSError):
                if any("inotify wd:" in info.read_text() for info in Path(f"/proc/{pid}/fdinfo").iterdir()):
                    return True
        return False

    @property
    def engine_http(self) -> str:
        """The path of the engine's own HTTP socket"""
        words = next(words for pid, words in self._members() if pid == self.engine)
        return next(word.partition("=")[2] for word in words if word.startswith("--http-socket="))

    @property
    def worker_sockets(self) -> list[str]:
        """The sockets on which BentoML's services hear each other"""
        return [str(path) for path in self.runtime.glob("bentoml-uds-*/*.sock")]

    def _members(self) -> list[tuple[int, list[str]]]:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            # a process may end meanwhile, or belong to somebody else
            with suppress(OSError):
                if self._mark in (folder / "environ").read_bytes().split(b"\0"):
                    words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
                    found.append((int(folder.name), words))
        return found

    def memory_kib(self, pids: Sequence[int]) -> int:
        """What these processes take"""
        texts = [Path(f"/proc/{pid}/status").read_text(encoding="ascii") for pid in pids]
        return sum(int(re.findall(r"^VmRSS:\s+(\d+) kB", text, re.MULTILINE)[0]) for text in texts)

    def peak_kib(self) -> int:
        """What the process that has had the most of memory has had"""
        return max(map(_peak_kib, (pid for pid, _ in self._members())))

    def pending(self, model: str) -> int:
        """Requests that wait in the engine"""
        values = metrics(self.address)
        return int(labelled(values, "nv_inference_pending_request_count", model=model, version="1"))

    def logged(self, identity: str) -> dict[str, Any]:
        """What the access log says of the request with that id"""
        match = self.log.wait_for(re.compile(rf'^(\{{"time".*"{re.escape(identity)}"\}})$'), ANSWER_S)
        line: dict[str, Any] = json.loads(match.group(1))
        return line

    # --- requests ---

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=ANSWER_S, trust_env=False)

    def connect(self, timeout: float = ANSWER_S) -> Connection:
        return Connection(self.address, timeout)

    def fetch(self, method: str, path: str, headers: Headers = (), body: bytes = b"") -> Response:
        return fetch(self.address, method, path, headers, body)

    def is_ready(self) -> bool:
        return self.answers("/readyz") == 200

    def answers(self, path: str) -> int:
        """The status; 0 where nobody listens"""
        try:
            return self.fetch("GET", path).status
        except OSError:
            return 0

    def _is_ready_or_ended(self) -> bool:
        return self.process.poll() is not None or self.is_ready()

    def _read(self) -> None:
        if stream := self.process.stdout:
            with stream:
                for line in stream:
                    self.log.add(line.rstrip("\n"))
        self.log.end()


def _peak_kib(pid: int) -> int:
    # it may end meanwhile
    with suppress(OSError):
        found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        return int(found[1]) if found else 0
    return 0


def _target(link: Path) -> str:
    # a file may be closed meanwhile
    with suppress(OSError):
        return str(link.readlink())
    return ""


def service_of(
    folder: Path, repository: Path, *, workers: int = 2, options: str = "", exit_on_error: bool = False
) -> Path:
    """A folder with a service over a repository"""
    folder.mkdir(parents=True, exist_ok=True)
    flags = {"exit_on_error": exit_on_error}
    (folder / "service.py").write_text(
        _SERVICE.format(repository=str(repository), workers=workers, options=options, flags=flags)
    )
    return folder


_SERVICE: Final = """
import numpy as np
from runners.bento import depends, engine, service

import bentoml

Models = engine({repository!r}, name="Models", flags={flags})


@service(name="Reader", workers={workers}{options})
class Reader:
    models = depends(Models)

    @bentoml.api
    async def add(self, one: int, other: int) -> int:
        rows = [np.full((1, 16), number, np.int32) for number in (one, other)]
        return int((await self.models.add_sub.async_run(*rows))["OUTPUT0"][0, 0])

    @bentoml.api
    async def slow(self, steps: int) -> int:
        return int((await self.models.slow.async_run(np.array([[steps]])))["OUTPUT0"][0, 0])
"""
