"""The page about ensembles: its repository is served, and its programs print what the page says."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final

from tests.integration.test_docs_python import blocks, environment
from tests.integration.test_docs_python_models import FILE
from tests.serving import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer

PAGE: Final = (ROOT / "docs" / "ensembles.md").read_text(encoding="utf-8")


def printed(program: str, folder: Path) -> str:
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_ensemble_of_the_page_answers_as_the_page_says(start_server: StartServer, tmp_path: Path) -> None:
    for name, text in FILE.findall(PAGE):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (tmp_path / "my_models" / "judge" / "1").mkdir()
    rest = FILE.sub("", PAGE)
    make, ask = blocks(rest, "python")
    (output,) = blocks(rest, "text")
    assert printed(make, tmp_path) == ""
    server = start_server(tmp_path / "my_models")
    assert printed(ask.replace("localhost:8000", f"localhost:{server.http[1]}"), tmp_path) == output
