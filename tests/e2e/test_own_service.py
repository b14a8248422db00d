"""The ten minutes of the page about BentoML services: its files in an empty folder"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.e2e.bento import Bento
from tests.e2e.pictures import upload
from tests.serving import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["BLUE", "PAGE", "write_files"]

PAGE: Final = (ROOT / "docs" / "bento.md").read_text(encoding="utf-8")
FILES: Final = dict(re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
BLUE: Final = ROOT / "docs/images/blue.png"


def write_files(folder: Path) -> None:
    """What the page says, up to the first start"""
    (folder / "preprocessing").mkdir()
    (folder / "preprocessing/__init__.py").touch()
    (folder / "model_repository/colours/1").mkdir(parents=True)
    assert FILES.keys() == {"model.py", "preprocessing/colours.py", "service.py"}
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    subprocess.run([sys.executable, "model.py"], cwd=folder, check=True)


@pytest.fixture(scope="module")
def bento(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bento]:
    folder: Path = tmp_path_factory.mktemp("own")
    write_files(folder)
    with Bento(folder).until_ready() as running:
        yield running


def test_it_answers_what_the_page_says(bento: Bento) -> None:
    with bento.client() as client:
        answer = upload(client, "/colour", BLUE.read_bytes()).raise_for_status()
    assert answer.text == "blue"
    assert f"```text\n{answer.text}\n```" in PAGE


def test_what_is_no_image_is_refused(bento: Bento) -> None:
    with bento.client() as client:
        answer = upload(client, "/colour", b"no image")
    assert (answer.status_code, answer.json()["error"][:27]) == (400, "expected an image (PNG, JPE")
