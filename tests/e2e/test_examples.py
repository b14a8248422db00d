"""The services of examples/: each starts as its README says, and answers what it says there."""

from __future__ import annotations

import difflib
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx
import pytest

from tests.e2e.bento import Bento
from tests.serving import ROOT, Server

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES: Final = ROOT / "examples"
NAMES: Final = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
ASKED: Final = re.compile(r"```sh\n((?:curl|python) [^`]*)\n```\n\n```text\n(.*?)\n```", re.DOTALL)
NUMBER: Final = re.compile(r"\d+\.\d+")
NEAR: Final = {"listen": 0.033, "search": 0.05}
"""What another processor may answer otherwise: one step of the model that listens, weights of eight bits"""
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
            answered = run(folder, command, bento)
            assert NUMBER.sub("…", answered) == NUMBER.sub("…", said)
            expected = [float(number) for number in NUMBER.findall(said)]
            assert [float(number) for number in NUMBER.findall(answered)] == pytest.approx(
                expected, rel=0, abs=NEAR.get(folder.name, 0)
            )


def run(folder: Path, command: str, bento: Bento) -> str:
    there = command.replace("localhost:3000", f"127.0.0.1:{bento.port}")
    if command.startswith("python "):
        there = f"{shlex.quote(sys.executable)}{command.removeprefix('python')} ws://127.0.0.1:{bento.port}/events"
    done = subprocess.run(["sh", "-c", there], cwd=folder, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "remote"])
def test_an_example_answers_what_its_page_says(name: str) -> None:
    (served,) = SERVED.findall((EXAMPLES / name / "README.md").read_text(encoding="utf-8"))
    ask(EXAMPLES / name, Bento(EXAMPLES / name, *served.split()))


def test_an_engine_elsewhere_answers(engine: Server) -> None:
    ask(EXAMPLES / "remote", Bento(EXAMPLES / "remote", MODELS_URL=engine.url))


def test_streams_of_sound_at_the_same_time_do_not_hear_each_other() -> None:
    folder = EXAMPLES / "listen"
    with Bento(folder).until_ready() as bento, ThreadPoolExecutor(4) as clients:
        heard = list(clients.map(lambda _: run(folder, "python speak.py greeting.wav", bento), range(4)))
        (alone,) = {run(folder, "python speak.py greeting.wav", bento)}
    assert heard == [alone] * 4
    assert alone.count("begins") == alone.count("ends") == 2


def test_what_is_found_means_the_same_and_need_not_say_the_same() -> None:
    wanted = {
        "I cannot remember my password": "Forgotten how to log in?",
        "do you ship to Zurich?": "We deliver to all countries",
        "I want to work for you": "Apprentices start in August.",
        "does a gift card expire?": "Gift vouchers are valid",
        "": "",
    }
    with Bento(EXAMPLES / "search").until_ready() as bento, ThreadPoolExecutor() as clients:
        url = f"http://127.0.0.1:{bento.port}/search"
        answers = clients.map(lambda text: httpx.post(url, json={"text": text, "most": 1}), wanted)
        found = [answer.raise_for_status().json() for answer in answers]
    for (text, document), (nearest,) in zip(wanted.items(), found, strict=True):
        assert nearest["document"].startswith(document), text


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
