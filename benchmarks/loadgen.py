"""The native load tools in `load/`: compiled on demand, run as processes, their JSON line as typed figures.

* `lg`: closed loop, c connections, each sends the next request when its answer is there.
* `openloop`: a fixed rate, whatever the server does; latency from the intended send time. With `--overload` a 503 with
  Retry-After is an answer like another.
* `echo`: the floor: answers a fixed body from one thread, the cheapest honest HTTP/1.1 server.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from benchmarks.options import BUILD, ROOT
from benchmarks.payload import Payload
from benchmarks.server import HOST, free_port

__all__ = [
    "ClosedLoop",
    "ClosedLoopRun",
    "Echo",
    "OpenLoop",
    "Overload",
    "Quantiles",
    "SteadyRun",
    "build",
    "open_loop",
    "overload",
]

SOURCES = ROOT / "benchmarks" / "load"
LIBRARIES = {"lg": ["-lnghttp2"], "echo": [], "openloop": []}
PREREQUISITES = "apt-get install g++ libnghttp2-dev"


@dataclass(frozen=True)
class ClosedLoop:
    requests: int
    failed: int
    per_second: float
    p50_us: float
    p99_us: float
    server_cpu_us: float
    client_cpu_us: float
    server_cores: float
    client_cores: float
    foreign_cores: float


@dataclass(frozen=True)
class Quantiles:
    min: float
    p1: float
    p50: float
    p90: float
    p99: float
    p999: float
    max: float


@dataclass(frozen=True)
class OpenLoop:
    requests: int
    most_waiting: int
    latency_us: Quantiles
    service_us: Quantiles
    client_late_us: Quantiles


@dataclass(frozen=True)
class Overload:
    """`errors` are answers that are neither a result nor a 503 with Retry-After, and connections that were lost."""

    results: int
    refusals: int
    errors: int
    unanswered: int
    unsent: int
    first_error: str
    good_per_second: float
    sent_per_second: float
    result_us: Quantiles
    refusal_us: Quantiles


def build() -> None:
    """Compiles what is older than its source; says what to install when it cannot."""
    if shutil.which("g++") is None:
        raise SystemExit(f"the benchmarks need g++: {PREREQUISITES}")
    BUILD.mkdir(parents=True, exist_ok=True)
    for tool, libraries in LIBRARIES.items():
        source, binary = SOURCES / f"{tool}.cc", BUILD / tool
        if binary.exists() and binary.stat().st_mtime > source.stat().st_mtime:
            continue
        command = ["g++", "-O2", "-std=c++17", str(source), *libraries, "-o", str(binary)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            hint = f"libnghttp2 is missing: {PREREQUISITES}" if "nghttp2" in done.stderr else done.stderr
            raise SystemExit(f"cannot compile {source.relative_to(ROOT)}: {hint}")


class _Tool:
    """A load tool at work. `figures()` waits for its JSON line."""

    def __init__(
        self, name: str, arguments: list[str], payload: Payload, core: int | None, *, gives_way: bool = False
    ) -> None:
        self._name = name
        self._body = tempfile.NamedTemporaryFile(suffix=".body")  # noqa: SIM115 (lives as long as the tool)
        self._body.write(payload.body)
        self._body.flush()
        command = [str(BUILD / name), "--path", payload.path, "--body", self._body.name, *arguments]
        for header, value in payload.headers.items():
            command += ["-H", f"{header}: {value}"]
        if core is not None:
            command = ["taskset", "-c", str(core), *command]
        if gives_way:
            command = ["nice", "-n", "19", *command]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def figures(self, *, despite_errors: bool = False) -> dict[str, Any]:
        out, error = self._process.communicate()
        self._body.close()
        if (self._process.returncode and not despite_errors) or not out.strip():
            raise SystemExit(f"{self._name} failed: {error.strip()} {out.strip()}")
        figures: dict[str, Any] = json.loads(out)
        return figures


class ClosedLoopRun:
    """Starts at once; `result()` waits for the end. The CPU time of `pids` is charged to the requests."""

    def __init__(
        self,
        port: int,
        payload: Payload,
        *,
        connections: int,
        streams: int = 0,
        seconds: float,
        warmup: float = 1.0,
        pids: Sequence[int] = (),
        core: int | None = None,
        gives_way: bool = False,
    ) -> None:
        """streams: with gRPC, so many requests at a time on each connection; 0: HTTP/1.1"""
        arguments = ["--proto", "grpc", "--streams", str(streams)] if streams else ["--proto", "http"]
        arguments += ["--host", HOST, "--port", str(port), "--conns", str(connections)]
        arguments += ["--warmup", str(warmup), "--duration", str(seconds)]
        for pid in pids:
            arguments += ["--pid", str(pid)]
        self._tool = _Tool("lg", arguments, payload, core, gives_way=gives_way)

    def result(self, *, despite_errors: bool = False) -> ClosedLoop:
        """Ends the program where a request failed, unless failures are to be counted."""
        figures = self._tool.figures(despite_errors=despite_errors)
        return ClosedLoop(
            requests=figures["n"],
            failed=figures["failed"],
            per_second=figures["rps"],
            p50_us=figures["p50_us"],
            p99_us=figures["p99_us"],
            server_cpu_us=figures["server_cpu_us"],
            client_cpu_us=figures["client_cpu_us"],
            server_cores=figures["server_cores"],
            client_cores=figures["client_cores"],
            foreign_cores=figures["machine_cores_busy"] - figures["server_cores"] - figures["client_cores"],
        )


def open_loop(
    port: int, payload: Payload, *, rate: float, connections: int, seconds: float, warmup: float = 1.0
) -> OpenLoop:
    arguments = ["--host", HOST, "--port", str(port), "--rate", str(rate), "--conns", str(connections)]
    arguments += ["--warmup", str(warmup), "--duration", str(seconds)]
    figures = _Tool("openloop", arguments, payload, core=None).figures()
    return OpenLoop(
        requests=figures["n"],
        most_waiting=figures["most_waiting"],
        latency_us=Quantiles(**figures["latency_us"]),
        service_us=Quantiles(**figures["service_us"]),
        client_late_us=Quantiles(**figures["client_late_us"]),
    )


class SteadyRun:
    """A fixed rate that starts at once. Any answer but a result ends the program."""

    def __init__(self, port: int, payload: Payload, *, rate: float, connections: int, seconds: float) -> None:
        arguments = ["--host", HOST, "--port", str(port), "--rate", str(rate), "--conns", str(connections)]
        self._tool = _Tool("openloop", [*arguments, "--warmup", "0", "--duration", str(seconds)], payload, core=None)

    def answered(self) -> int:
        """Waits for the end."""
        answered: int = self._tool.figures()["n"]
        return answered


def overload(port: int, payload: Payload, *, rate: float, connections: int, seconds: float, warmup: float) -> Overload:
    """More than the server can do. Latencies are those from the actual send: the client is late, too."""
    arguments = ["--host", HOST, "--port", str(port), "--rate", str(rate), "--conns", str(connections), "--overload"]
    arguments += ["--warmup", str(warmup), "--duration", str(seconds)]
    figures = _Tool("openloop", arguments, payload, core=None).figures(despite_errors=True)
    sent = int(rate * (warmup + seconds)) - figures["unsent"]
    return Overload(
        results=figures["n"],
        refusals=figures["refusals"],
        errors=figures["errors"],
        unanswered=figures["unanswered"],
        unsent=figures["unsent"],
        first_error=figures["first_error"],
        good_per_second=figures["good"] / seconds,
        sent_per_second=sent / (warmup + seconds),
        result_us=Quantiles(**figures["service_us"]),
        refusal_us=Quantiles(**figures["refused_us"]),
    )


class Echo:
    """`with Echo(response_bytes) as echo:` an echo server whose answers are as long as the real ones."""

    def __init__(self, response_bytes: int) -> None:
        self.port = free_port()
        self._command = [str(BUILD / "echo"), str(self.port), str(response_bytes)]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command)
        deadline = time.monotonic() + 5
        while True:
            try:
                socket.create_connection((HOST, self.port), timeout=1).close()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            else:
                return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the echo server was not started")
        return self._process.pid
