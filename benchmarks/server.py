"""The servers under test, as a user starts them, each in processes of its own."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks import processes
from benchmarks.options import BUILD, ROOT
from benchmarks.payload import Payload
from tests.tritonserver import Tritonserver, is_installed

__all__ = ["HOST", "Program", "Server", "Triton", "free_port", "wait_for_port"]

HOST = "127.0.0.1"
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 40


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port


def wait_for_port(port: int) -> None:
    """Returns when something listens there."""
    started = time.monotonic()
    while time.monotonic() - started < START_TIMEOUT_S:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.01)
    raise SystemExit(f"nothing listens on port {port}")


class Program:
    """`with Program(...) as program:` is ready inside and gone outside. It shall listen on `port`."""

    def __init__(
        self,
        command: Sequence[str],
        port: int,
        ready_path: str,
        environment: Mapping[str, str] | None = None,
        *,
        look_s: float = 0.002,
        log: str = "server.log",
        directory: Path = ROOT,
    ) -> None:
        self.port = port
        self.ready_after_s = 0.0
        self._command = list(command)
        self._ready_path = ready_path
        self._look_s = look_s
        self._environment = {**os.environ, **(environment or {})}
        self._log = BUILD / log
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        BUILD.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as log:
            started = time.monotonic()
            self._process = subprocess.Popen(
                self._command, cwd=self._directory, env=self._environment, stdout=log, stderr=subprocess.STDOUT
            )
        try:
            self._wait_ready(started)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the server was not started")
        return self._process.pid

    def pids(self) -> list[int]:
        return processes.tree(self.pid)

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def answer(self, payload: Payload) -> bytes:
        """One request, to see that it is answered and how long the answer is."""
        status, body = self._call("POST", payload.path, payload.body, payload.headers)
        if status != http.client.OK:
            raise SystemExit(f"POST {payload.path}: HTTP {status}: {body[:300].decode(errors='replace')}")
        return body

    def _call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        port: int | None = None,
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(HOST, port or self.port, timeout=10)
        try:
            connection.request(method, path, body or None, headers or {})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def _wait_ready(self, started: float) -> None:
        while time.monotonic() - started < START_TIMEOUT_S:
            if self._process is None or self._process.poll() is not None:
                break
            try:
                if self._call("GET", self._ready_path)[0] == http.client.OK:
                    self.ready_after_s = time.monotonic() - started
                    return
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(self._look_s)
        tail = "\n".join(self.log().splitlines()[-20:])
        raise SystemExit(f"the server did not become ready: {' '.join(self._command)}\n{tail}")

    def _stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Server(Program):
    """The shipped `python -m runners serve`, of this checkout or of another one that `make setup` has set up."""

    def __init__(
        self,
        repository: Path,
        *,
        local_socket: Path | None = None,
        environment: Mapping[str, str] | None = None,
        checkout: Path = ROOT,
        flags: Sequence[str] = (),
    ) -> None:
        port, self.grpc_port, self.metrics_port = free_port(), free_port(), free_port()
        program = sys.executable if checkout == ROOT else str(checkout / ".venv/bin/python")
        log = "server.log" if checkout == ROOT else "other-server.log"
        command = [program, "-m", "runners", "serve", "--model-repository", str(repository)]
        command += ["--http-address", HOST, "--http-port", str(port)]
        command += ["--grpc-address", HOST, "--grpc-port", str(self.grpc_port)]
        command += ["--metrics-address", HOST, "--metrics-port", str(self.metrics_port)]
        if local_socket is not None:
            command += ["--local-socket", str(local_socket)]
        command += flags
        super().__init__(command, port, "/v2/health/ready", environment, log=log, directory=checkout)

    def ask(self, verb: str, body: bytes = b"") -> tuple[int, bytes]:
        """A call of the repository API, whatever it is answered with."""
        return self._call("POST", f"/v2/repository/{verb}", body)

    def counts(self, model: str) -> tuple[int, int]:
        """Inferences and executions so far: their difference over a window is the mean batch size."""
        statistics = self.statistics(model)
        return int(statistics["inference_count"]), int(statistics["execution_count"])

    def statistics(self, model: str) -> dict[str, Any]:
        status, body = self._call("GET", f"/v2/models/{model}/stats")
        if status != http.client.OK:
            raise SystemExit(f"GET /v2/models/{model}/stats: HTTP {status}")
        found: dict[str, Any] = json.loads(body)["model_stats"][0]
        return found

    def metrics(self) -> str:
        status, body = self._call("GET", "/metrics", port=self.metrics_port)
        if status != http.client.OK:
            raise SystemExit(f"GET /metrics: HTTP {status}")
        return body.decode()


class Triton(Program):
    """The tritonserver of nvidia-pytriton, as it starts by default."""

    def __init__(self, repository: Path, *, environment: Mapping[str, str]) -> None:
        if not is_installed():
            raise SystemExit("the tritonserver of nvidia-pytriton is not installed: make .venv-triton/.synced")
        home = BUILD / "tritonserver"
        shutil.rmtree(home, ignore_errors=True)
        server = Tritonserver.at(home)
        port, self.grpc_port = free_port(), free_port()
        command = server.command(repository, http=port, grpc=self.grpc_port, metrics=free_port())
        super().__init__(command, port, "/v2/health/ready", {**server.environment(), **environment}, log="triton.log")
