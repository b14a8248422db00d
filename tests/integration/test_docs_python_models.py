"""The page about Python models: its repository is served, and its programs print what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.integration.grpc_doors import port_of
from tests.integration.test_docs_python import blocks, environment
from tests.serving import ROOT, Server

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = (ROOT / "docs" / "python_models.md").read_text(encoding="utf-8")
FILE: Final = re.compile(r"^`(my_models/[^`]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def programs() -> dict[str, tuple[str, str]]:
    """The program of each section, and what it prints"""
    found = {}
    for title, body in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL):
        rest = FILE.sub("", body)
        if program := "".join(blocks(rest, "python")):
            found[title] = (program, "".join(blocks(rest, "text")))
    return found


PROGRAMS: Final = programs()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serves the repository of the page."""
    folder: Path = tmp_path_factory.mktemp("page")
    for name, text in FILE.findall(PAGE):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (option,) = re.findall(r"`python3 -m venv (\S+) my_models/elsewhere/environment`", PAGE)
    made = folder / "my_models" / "elsewhere" / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", option, made], check=True)
    # the packages of this environment, as the option gives those of the system
    (packages,) = made.glob("lib/python*/site-packages")
    outer = Path(sys.prefix) / packages.relative_to(made)
    (packages / "outer.pth").write_text(str(outer), encoding="utf-8")
    started = Server.start(folder / "my_models")
    yield started
    started.kill()


@pytest.mark.parametrize("title", PROGRAMS)
def test_a_program_prints_what_the_page_says(server: Server, title: str) -> None:
    program, output = PROGRAMS[title]
    program = program.replace("localhost:8000", f"localhost:{server.http[1]}")
    program = program.replace("localhost:8001", f"localhost:{port_of(server)}")
    program = program.replace("localhost:8002", f"localhost:{server.metrics_address[1]}")
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, output), done.stderr


def test_each_kind_has_a_program() -> None:
    kinds = [
        "Plain",
        "Strings",
        "Async",
        "Decoupled",
        "Other models",
        "Auto-complete",
        "Errors",
        "Metrics",
        "Environment",
    ]
    assert list(PROGRAMS) == kinds
