"""The commands of "Your model in ten minutes", in a folder of their own; installing and images are tested elsewhere"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.e2e.bento import Bento
from tests.serving import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
PROGRAMS: Final = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
BLOCKS: Final = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
COMMANDS: Final = [line for block in BLOCKS for line in block.splitlines()]
PRINTED: Final = re.findall(r"^```text\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def command(start: str) -> str:
    (found,) = (line for line in COMMANDS if line.startswith(start))
    return found


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `kushi`, `bentoml` and `python` of this environment"""
    folder = tmp_path_factory.mktemp("commands")
    for name, words in (("kushi", "-m kushi"), ("bentoml", "-m bentoml"), ("python", "")):
        (folder / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("ten_minutes")
    (folder / "warmth.py").write_text(PROGRAMS[0], encoding="utf-8")
    return folder


def run(line: str, folder: Path, commands: Path) -> str:
    variables = os.environ | {"PATH": f"{commands}:{os.environ['PATH']}", "BENTOML_DO_NOT_TRACK": "True"}
    done = subprocess.run(line, shell=True, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def exported(start: Path, commands: Path) -> list[str]:
    return run(command("kushi export"), start, commands).splitlines()


@pytest.fixture(scope="module")
def folder(start: Path, commands: Path, exported: list[str]) -> Path:
    assert exported
    run(command("kushi new weather"), start, commands)
    return start / "weather"


@pytest.fixture(scope="module")
def named(folder: Path, commands: Path) -> Path:
    assert (folder / "service.py").read_text(encoding="utf-8") == PROGRAMS[1]
    run(command("sed"), folder, commands)
    return folder


@pytest.fixture(scope="module")
def bento(named: Path) -> Iterator[Bento]:
    with Bento(named).until_ready() as running:
        yield running


def test_the_model_is_exported_as_the_page_says(start: Path, exported: list[str]) -> None:
    # how much the answers differ is a matter of the processor
    first, head, _, last = PRINTED[0].splitlines()
    assert [exported[0], exported[1].split(), exported[-1]] == [first, head.split(), last]
    assert (start / "models/warmth/config.pbtxt").read_text(encoding="utf-8") == PRINTED[1]


def test_the_files_that_the_page_lists_are_written(folder: Path) -> None:
    listed = re.findall(r"^\| `(\S+?)/?` \|", PAGE, re.MULTILINE)
    assert len(listed) == 6
    assert {*listed} <= {path.name for path in folder.iterdir()}


def test_the_service_answers_what_the_page_says(bento: Bento, named: Path, commands: Path) -> None:
    asked = [line.replace("localhost:3000", f"127.0.0.1:{bento.port}") for line in COMMANDS if line.startswith("curl")]
    answers = [run(f"{line} --silent --show-error --fail-with-body", named, commands) for line in asked]
    assert [f"{answer}\n" for answer in answers] == PRINTED[2:4]


def test_its_test_passes(named: Path, commands: Path) -> None:
    assert "1 passed" in run(command("python -m pytest"), named, commands)


def test_its_model_is_checked(named: Path, commands: Path) -> None:
    (check,) = re.findall(r"`(kushi check --load \S+)`", PAGE)
    assert run(check, named, commands) == PRINTED[4]
