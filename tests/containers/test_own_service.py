"""The image of what `kushi new` writes, built as the tutorial says: from the wheels, outside of this repository"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

import httpx
import pytest

from tests.containers.docker import Container, docker
from tests.packages.environments import BUILT, UV, install, run, venv
from tests.serving import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.containers.conftest import Bases, Build

pytestmark = pytest.mark.timeout(1200)

TUTORIAL: Final = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(build: Build, bases: Bases, tmp_path: Path) -> Iterator[Path]:
    """A service, whose image is called `colours:latest`"""
    python = venv(tmp_path / "venv")
    install(python, f"kushi[bento,cpu,uploads] @ {BUILT.as_uri()}")
    run(python.with_name("kushi"), "new", "colours", cwd=tmp_path)
    # BentoML locks with uv
    own = {**build.environment, "PATH": f"{python.parent}:{UV.parent}:{build.environment['PATH']}"}
    arguments = ("variant=cpu", f"base_image={bases.full}", "python_version=3.11")
    options = [word for each in arguments for word in ("--arg", each)]
    run(python.with_name("bentoml"), "build", *options, cwd=tmp_path / "colours", **own)
    (line,) = re.findall(r"^bentoml (containerize .+)$", TUTORIAL, re.MULTILINE)
    words = shlex.split(line.replace("weather", "colours"))
    run(python.with_name("bentoml"), *words, cwd=tmp_path, **own)
    yield tmp_path / "colours"
    docker("rmi", "--force", "colours:latest")


def test_it_runs_with_the_options_of_the_page(folder: Path) -> None:
    (line,) = re.findall(r"^docker run (.+) -p 3000:3000 weather:latest$", TUTORIAL, re.MULTILINE)
    with Container("colours:latest", *shlex.split(line)).until_ready() as container:
        files = {"picture": ("blue.png", (folder / "blue.png").read_bytes(), "image/png")}
        answer = httpx.post(f"http://{container.host}:3000/classify", files=files, timeout=60).raise_for_status()
    assert next(iter(answer.json())) == "blue"
