"""The image that the tests run, built once and removed at the end."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.containers.docker import READ_ONLY, Container, building_environment, docker, no_daemon
from tests.serving import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Bases", "Build"]

BUILD_S = 900


@dataclass(frozen=True)
class Bases:
    """Images to build on: a Debian with Python and uv, and one without uv"""

    full: str
    bare: str


@dataclass(frozen=True)
class Build:
    """A place where Bentos are built"""

    environment: dict[str, str]

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=BUILD_S, check=False
        )

    def bento(self, *arguments: str) -> Path:
        """The folder of a Bento of service.py"""
        done = self.run(ROOT / ".venv/bin/bentoml", "build", "--output", "tag", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        tag = done.stdout.strip().rpartition("__tag__:")[2]
        return Path(self.environment["BENTOML_HOME"], "bentos", *tag.split(":"))


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    environment = building_environment(tmp_path_factory.mktemp("client"))
    path = f"{ROOT / '.venv/bin'}:{environment['PATH']}"
    own = {"PATH": path, "BENTOML_HOME": str(tmp_path_factory.mktemp("home")), "BENTOML_DO_NOT_TRACK": "True"}
    return Build({**environment, **own})


@pytest.fixture(scope="session")
def bases(build: Build) -> Iterator[Bases]:
    if reason := no_daemon():
        pytest.skip(f"NOT TESTED, the image and its containers: {reason}")
    name = "kushi-test-base"
    done = build.run(ROOT / "tests/containers/base-image", name)
    assert done.returncode == 0, done.stdout + done.stderr
    yield Bases(name, f"{name}-bare")
    docker("rmi", "--force", name, f"{name}-bare")


@pytest.fixture(scope="session")
def image(build: Build, bases: Bases) -> Iterator[str]:
    """That of `make image`, for a CPU"""
    name = "kushi-test:cpu"
    arguments = ("variant=cpu", f"base_image={bases.full}", "python_version=3.11")
    done = build.run(ROOT / "deploy/image/build", name, *(word for each in arguments for word in ("--arg", each)))
    assert done.returncode == 0, done.stdout + done.stderr
    yield name
    docker("rmi", "--force", name)


@pytest.fixture(scope="session")
def start(image: str) -> Callable[..., Container]:
    """A container that can write to /tmp alone, with more options of `docker run`; the caller removes it"""
    return lambda *options: Container(image, *READ_ONLY, *options)
