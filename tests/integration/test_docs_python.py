"""The programs of the pages that use the package: each runs, prints what the page says, and is well typed.

The Python blocks of a section are one program. Where a section starts a server, its program talks to that.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.serving import ROOT, Server

if TYPE_CHECKING:
    from tests.conftest import StartServer

PAGES: Final = [ROOT / "docs" / "python.md", ROOT / "docs" / "serving.md", ROOT / "README.md"]
SOCKET: Final = "/tmp/kushi.sock"
PORT: Final = "localhost:8000"


@dataclass(frozen=True)
class Section:
    title: str
    program: str
    output: str
    server: list[str]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def sections() -> list[Section]:
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for title, body in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL):
            program = "\n".join(blocks(body, "python"))
            if "from kushi import" in program:
                commands = [shlex.split(line) for block in blocks(body, "sh") for line in block.splitlines()]
                server = next((command for command in commands if "serve" in command), [])
                name = f"{page.stem}: {title}"
                found.append(Section(name, program, "".join(blocks(body, "text")), server))
    return found


SECTIONS: Final = sections()


def needs_missing_package(section: Section) -> str | None:
    return "torch" if "import torch" in section.program and importlib.util.find_spec("torch") is None else None


def environment() -> dict[str, str]:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "native/crates/bindings")])
    return os.environ | {"PYTHONPATH": str(ROOT), "MYPYPATH": paths}


def reached(program: str, server: Server, socket: Path) -> str:
    """The program, with the places of the page replaced by those of the test."""
    return program.replace(SOCKET, str(socket)).replace(PORT, f"localhost:{server.http[1]}")


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.title)
def test_a_program_prints_what_the_page_says(section: Section, start_server: StartServer, tmp_path: Path) -> None:
    if missing := needs_missing_package(section):
        pytest.skip(f"{missing} is not installed")
    program = section.program
    if section.server:
        at = section.server.index("serve")
        repository, *flags = section.server[at + 1 :]
        socket = tmp_path / "kushi.sock"
        server = start_server(ROOT / repository, *(flag.replace(SOCKET, str(socket)) for flag in flags))
        program = reached(program, server, socket)
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    shown = "\n".join(line for line in done.stderr.splitlines() if not re.match(r"[IW]\d{4} ", line))
    assert done.returncode == 0, shown
    assert done.stdout == section.output or not section.output


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the programs of the page."""
    folder = tmp_path_factory.mktemp("programs")
    for number, section in enumerate(SECTIONS):
        if not needs_missing_package(section):
            (folder / f"section_{number}.py").write_text(section.program)
    return folder


def test_mypy_accepts_the_programs(programs: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(programs / "cache"), str(programs)]
    done = subprocess.run(command, cwd=programs, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_pyright_accepts_the_programs(programs: Path) -> None:
    settings = {
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "extraPaths": [str(ROOT), str(ROOT / "native/crates/bindings")],
        "include": ["section_*.py"],
    }
    (programs / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [
        str(Path(sys.executable).with_name("basedpyright")),
        *("--project", str(programs)),
        *("--pythonpath", sys.executable),
    ]
    done = subprocess.run(command, cwd=programs, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_pages_have_programs() -> None:
    assert len(SECTIONS) >= 11
