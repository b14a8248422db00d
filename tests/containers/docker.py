"""Containers of the service as the tests start, watch and stop them, with the client of docker that is there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import httpx

from tests.raw_http import Connection, Headers, Response, fetch
from tests.serving import labelled, metrics
from tests.waiting import eventually

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["READ_ONLY", "Container", "building_environment", "docker", "no_daemon"]

READ_ONLY: Final = ("--read-only", "--tmpfs", "/tmp")
_PORT: Final = 3000
_CALL_S: Final = 60.0
_START_S: Final = 90.0
_LISTING: Final = 'for each in /proc/[0-9]*; do echo "${each#/proc/} $(tr "\\0" " " <$each/cmdline)"; done'


def docker(*words: str, timeout: float = _CALL_S) -> str:
    done = subprocess.run(
        ["docker", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, f"docker {' '.join(words)}: {done.stderr or done.stdout}"
    return done.stdout.strip()


def no_daemon() -> str | None:
    """Why no container can be started; None where one can"""
    if shutil.which("docker") is None:
        return "there is no client of docker"
    asked = subprocess.run(["docker", "version"], capture_output=True, text=True, timeout=_CALL_S, check=False)
    return None if asked.returncode == 0 else f"no daemon of docker answers: {asked.stderr.strip()}"


def building_environment(folder: Path) -> dict[str, str]:
    """One in which `docker build` has BuildKit, if a client is installed that does; `folder` is for its name"""
    for place in dict.fromkeys(os.environ["PATH"].split(os.pathsep)):
        client = Path(place, "docker")
        if client.exists() and _has_buildkit(client):
            (folder / "docker").symlink_to(client)
            return {**os.environ, "PATH": os.pathsep.join([str(folder), os.environ["PATH"]])}
    return {**os.environ, "DOCKER_BUILDKIT": "0"}


def _has_buildkit(client: Path) -> bool:
    """Since version 23, it is a plugin"""
    asked = subprocess.run([client, "--version"], capture_output=True, text=True, timeout=_CALL_S, check=False)
    version = re.search(r"version (\d+)", asked.stdout)
    if version is not None and int(version[1]) < 23:
        return True
    asked = subprocess.run([client, "buildx", "version"], capture_output=True, text=True, timeout=_CALL_S, check=False)
    return asked.returncode == 0


class Container:
    """One running container. Whoever makes it uses it as a context: it is removed at the end"""

    def __init__(self, image: str, *options: str) -> None:
        """options: of `docker run`"""
        self.name = docker("run", "--detach", *options, image)
        self.host = docker("inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            # pytest shows it with the failure
            print("\n".join(line for line in self.log().splitlines() if not line.startswith("{")))  # noqa: T201
        docker("rm", "--force", "--volumes", self.name)

    def until_ready(self) -> Self:
        eventually(lambda: not self.runs() or self.is_ready(), "the container is ready", _START_S)
        assert self.runs(), self.log()
        return self

    def until(self, health: str) -> Self:
        """Comes back when docker calls it so"""
        eventually(lambda: not self.runs() or self.state["Health"]["Status"] == health, health, _START_S)
        assert self.runs(), self.log()
        return self

    # --- its processes ---

    def run(self, *words: str) -> str:
        """A command inside, as its user"""
        return docker("exec", self.name, *words)

    def processes(self) -> dict[int, str]:
        lines = [line.strip().partition(" ") for line in self.run("bash", "-c", _LISTING).splitlines()]
        return {int(pid): words for pid, _, words in lines if words}

    @property
    def engine(self) -> int:
        """The process that runs the models"""
        (pid,) = self.engines()
        return pid

    def engines(self) -> list[int]:
        return [pid for pid, words in self.processes().items() if "--drain-fd=" in words and "bash" not in words]

    def workers(self, service: str) -> list[int]:
        return [pid for pid, words in self.processes().items() if f"--service-name {service} " in words]

    def threads(self, pid: int) -> list[str]:
        return self.run("bash", "-c", f"cat /proc/{pid}/task/*/comm").split()

    def signal(self, name: str, pid: int) -> None:
        self.run("bash", "-c", f"kill -{name} {pid}")

    # --- its state ---

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(docker("inspect", "--format", "{{json .State}}", self.name))
        return found

    def runs(self) -> bool:
        return bool(self.state["Running"])

    def log(self) -> str:
        command = ["docker", "logs", self.name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_CALL_S, check=True)
        return done.stdout + done.stderr

    def wait(self, timeout: float) -> int:
        """Its exit code, when it has ended by itself"""
        return int(docker("wait", self.name, timeout=timeout))

    # --- requests ---

    @property
    def address(self) -> tuple[str, int]:
        return (self.host, _PORT)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{_PORT}"

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=30, trust_env=False)

    def connect(self, timeout: float = 30.0) -> Connection:
        return Connection(self.address, timeout)

    def fetch(self, method: str, path: str, headers: Headers = (), body: bytes = b"") -> Response:
        return fetch(self.address, method, path, headers, body)

    def is_ready(self) -> bool:
        try:
            return self.fetch("GET", "/readyz").status == 200
        except OSError:
            return False

    def pending(self, model: str) -> int:
        """Requests that wait in the engine"""
        values = metrics(self.address)
        return int(labelled(values, "nv_inference_pending_request_count", model=model, version="1"))
