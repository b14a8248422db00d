"""The services of examples/: each starts as its README says, and answers what it says there."""

from __future__ import annotations

import difflib
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.e2e.bento import Bento
from tests.serving import ROOT, Server

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES: Final = ROOT / "examples"
NAMES: Final = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
ASKED: Final = re.compile(r"```sh\n(curl .*?)\n```\n\n```text\n(.*?)\n```", re.DOTALL)
SERVED: Final = re.compile(r"^(?:[A-Z_]+=\S+ )?bentoml serve ?(.*)$", re.MULTILINE)


@pytest.fixture
def engine() -> Iterator[Server]:
    """What the README of `remote` starts in another shell"""
    server = Server.start(EXAMPLES / "minimal" / "model_repository", "--allow-grpc=true", "--grpc-port=0")
    try:
        yield server
    finally:
        server.stop()


def ask(folder: Path, service: Bento) -> None:
    """Runs each command of its README that asks the service."""
    questions = ASKED.findall((folder / "README.md").read_text(encoding="utf-8"))
    assert questions
    with service.until_ready() as bento:
        for command, said in questions:
            there = command.replace("localhost:3000", f"127.0.0.1:{bento.port}")
            done = subprocess.run(
                ["sh", "-c", there], cwd=folder, capture_output=True, text=True, check=True, timeout=60
            )
            assert done.stdout.strip() == said


@pytest.mark.parametrize("name", [name for name in NAMES if name != "remote"])
def test_an_example_answers_what_its_page_says(name: str) -> None:
    (served,) = SERVED.findall((EXAMPLES / name / "README.md").read_text(encoding="utf-8"))
    ask(EXAMPLES / name, Bento(EXAMPLES / name, *served.split()))


def test_an_engine_elsewhere_answers(engine: Server) -> None:
    ask(EXAMPLES / "remote", Bento(EXAMPLES / "remote", MODELS_URL=engine.url))


def test_all_of_them_are_listed() -> None:
    listed = re.findall(r"\]\((\w+)/README.md\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == NAMES


def test_the_migration_changes_what_it_says_and_nothing_else() -> None:
    folder = EXAMPLES / "triton_migration"
    before, after = ((folder / name).read_text(encoding="utf-8").splitlines() for name in ("before.py", "service.py"))
    changed = [line for line in difflib.ndiff(before, after) if line[0] in "+-"]
    (shown,) = re.findall(r"```diff\n(.*?)\n```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    said = [line for line in shown.splitlines() if line.startswith(("+", "-"))]
    assert sorted(f"{line[0]}{line[2:]}" for line in changed) == sorted(said)
    assert len(said) == 5
