"""
The real tritonserver and `kushi serve` on the same repository, and what both say to the same request.

Everything is compared as it came, but for what `told` takes away, which differs by nature.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from tests.raw_http import fetch
from tests.serving import Log, Server, free_port
from tests.tritonserver import Tritonserver
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.raw_http import Address, Headers, Response

__all__ = [
    "Answers",
    "Pair",
    "Peer",
    "PeerDied",
    "Request",
    "free_ports",
    "generate",
    "get",
    "infer",
    "post",
    "tensor",
    "told",
    "without_own_lines",
]

START_S: Final = 150.0
DEATH_S: Final = 10.0
"""How long a server that answers nothing may take to end"""
STARTED: Final = re.compile(r"Started HTTPService at")
OWN_LINE: Final = re.compile(r"  (<frozen importlib|.*/triton_python_backend_utils\.py\()")
SEQUENCE: Final = {"sequence_id": 0, "sequence_start": False, "sequence_end": False}
"""What Triton adds to each answer of an ensemble, whatever the request says"""
DATATYPES: Final = {"bool": "BOOL", "float16": "FP16", "float32": "FP32", "float64": "FP64", "object": "BYTES"}


@dataclass(frozen=True)
class Request:
    """What is sent, byte by byte"""

    method: str
    path: str
    body: bytes = b""
    headers: Headers = ()


def get(path: str) -> Request:
    return Request("GET", path)


def post(path: str, document: object) -> Request:
    return Request("POST", path, json.dumps(document).encode())


def infer(
    model: str,
    inputs: dict[str, NDArray[Any]],
    *,
    outputs: Sequence[str] = (),
    verb: str = "infer",
    **members: Any,  # noqa: ANN401 - of a document of JSON
) -> Request:
    """An inference as JSON; `members` are those of the document that may be left out"""
    document: dict[str, object] = {**members, "inputs": [tensor(name, array) for name, array in inputs.items()]}
    if outputs:
        document["outputs"] = [{"name": name} for name in outputs]
    return post(f"/v2/models/{model}/{verb}", document)


def generate(model: str, inputs: dict[str, object], *, stream: bool = False) -> Request:
    return post(f"/v2/models/{model}/generate{'_stream' if stream else ''}", inputs)


def tensor(name: str, array: NDArray[Any]) -> dict[str, object]:
    datatype = DATATYPES.get(str(array.dtype), str(array.dtype).upper())
    return {"name": name, "datatype": datatype, "shape": list(array.shape), "data": array.reshape(-1).tolist()}


@dataclass(frozen=True)
class Answers:
    """To one request"""

    triton: Response
    kushi: Response

    def are_the_same(self, status: int = 200) -> Any:  # noqa: ANN401 - a JSON document may be anything
        """Both are of this status and say the same; answers what"""
        assert (self.triton.status, told(self.triton)) == (self.kushi.status, told(self.kushi))
        assert self.kushi.status == status, self.kushi
        if status == 200 and self.kushi.body:
            for name in ("content-type", "inference-header-content-length"):
                assert self.triton.header(name) == self.kushi.header(name)
        return told(self.kushi)


class PeerDied(AssertionError):
    """It has died by itself"""


class Peer:
    """The real tritonserver alone, on a repository that it does not write to; `wait` until it answers"""

    def __init__(self, home: Path, repository: Path, *arguments: str) -> None:
        triton = Tritonserver.at(home / "triton")
        http, grpc, metrics = free_ports()
        command = triton.command(repository, http=http, grpc=grpc, metrics=metrics)
        # a model that never answers would hold its end up
        command += ["--exit-timeout-secs=1", "--exit-on-error=false", "--strict-readiness=false", *arguments]
        self.log = Log()
        self.process = subprocess.Popen(
            command,
            env={**os.environ, **triton.environment()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.http: Address = ("127.0.0.1", http)
        self.grpc: Address = ("127.0.0.1", grpc)
        self.metrics: Address = ("127.0.0.1", metrics)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait(self) -> None:
        """Raises `PeerDied` where it has ended by itself, whose models may still hold its log"""
        eventually(lambda: self._has_started() or self.process.poll() is not None, "Triton has started", START_S)
        if not self._has_started():
            raise self.death()
        eventually(self._is_ready, "Triton is ready")

    def death(self) -> PeerDied:
        """How it has ended by itself; raises where it has not"""
        try:
            code = self.process.wait(DEATH_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"tritonserver is alive and does not answer:\n{self.log.text()}") from None
        return PeerDied(f"tritonserver ended with {code}:\n{self.log.text()}")

    def _has_started(self) -> bool:
        return any(STARTED.search(line) for line in list(self.log.lines))

    def ask(self, request: Request) -> Response:
        return fetch(self.http, request.method, request.path, request.headers, request.body)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.log.add(line.rstrip("\n"))
        self.log.end()

    def _is_ready(self) -> bool:
        # it says that it listens before it does
        with suppress(ConnectionRefusedError):
            return fetch(self.http, "GET", "/v2/health/ready").status == 200
        return False

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(START_S)
        finally:
            self.process.kill()
            self.process.wait()
            self.reader.join(START_S)


class Pair:
    """Both servers, and a repository that neither of them writes to"""

    def __init__(self, home: Path, repository: Path, *arguments: str) -> None:
        self.peer = Peer(home, repository, *arguments)
        self.server: Server | None = None
        try:
            self.server = Server.start(repository, "--exit-on-error=false", "--strict-readiness=false", *arguments)
            self.kushi: Address = self.server.http
            self.kushi_metrics: Address = self.server.metrics_address
            self._start_once_more: Callable[[], Peer] | None = partial(Peer, home, repository, *arguments)
            self._restarting = threading.Lock()
            try:
                self.peer.wait()
            except PeerDied as death:
                self._restart(self.peer, death)
        except BaseException:
            self.stop()
            raise

    @property
    def triton(self) -> Address:
        return self.peer.http

    def _restart(self, dead: Peer, death: PeerDied) -> None:
        """Once: it aborts now and then, where processes of its models end while others begin"""
        with self._restarting:
            if self.peer is not dead:
                return
            if self._start_once_more is None:
                raise death
            sys.stderr.write(f"tritonserver is started once more: it has died\n{death}\n")
            dead.stop()
            peer, self._start_once_more = self._start_once_more(), None
            self.peer = peer
            peer.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self.server is not None:
            self.server.kill()
        self.peer.stop()

    def ask(self, request: Request) -> Answers:
        peer = self.peer
        try:
            triton = peer.ask(request)
        except ConnectionError:
            self._restart(peer, peer.death())
            triton = self.peer.ask(request)
        kushi = fetch(self.kushi, request.method, request.path, request.headers, request.body)
        return Answers(triton, kushi)

    def ask_together(self, requests: Sequence[Request]) -> list[Answers]:
        """All at once, each on a connection of its own"""
        with ThreadPoolExecutor(len(requests)) as pool:
            return list(pool.map(self.ask, requests))

    def index(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What both say of each model"""
        answers = self.ask(Request("POST", "/v2/repository/index"))
        triton, kushi = ({row["name"]: row for row in answer.json()} for answer in (answers.triton, answers.kushi))
        return triton, kushi


def free_ports() -> list[int]:
    ports: set[int] = set()
    while len(ports) < 3:
        ports.add(free_port())
    return list(ports)


def told(response: Response) -> Any:  # noqa: ANN401 - a JSON document may be anything
    """What an answer says, without what differs by nature"""
    if response.body.startswith(b"data: "):
        events = response.body.decode().removesuffix("\n\n").split("\n\n")
        return [_plain(json.loads(event.removeprefix("data: "))) for event in events]
    document = _plain(response.infer_json) if response.body else ""
    return (document, response.binary) if response.binary else document


def _plain(document: Any) -> Any:  # noqa: ANN401
    if not isinstance(document, dict):
        return document
    plain = {name: value for name, value in document.items() if name not in SEQUENCE}
    if plain.get("parameters") == SEQUENCE:
        del plain["parameters"]
    if "error" in plain:
        plain["error"] = without_own_lines(plain["error"])
    outputs = plain.get("outputs")
    if outputs and "shape" in outputs[0] and "data" in outputs[0]:
        plain["outputs"] = sorted(outputs, key=lambda output: str(output["name"]))
    return plain


def without_own_lines(error: str) -> str:
    """An error without the lines of a traceback that are not of the model"""
    return "".join(line for line in error.splitlines(keepends=True) if not OWN_LINE.match(line))
