"""The ten minutes of the page about BentoML services: what `kushi new` writes, served"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from runners.cli import main
from tests.e2e.bento import Bento
from tests.serving import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE: Final = (ROOT / "docs" / "bento.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("own") / "colours"
    assert main(["new", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def bento(folder: Path) -> Iterator[Bento]:
    with Bento(folder).until_ready() as running:
        yield running


def test_the_page_shows_what_is_written(folder: Path) -> None:
    for name in ("service.py", "preprocessing/pictures.py"):
        assert f"```python\n{(folder / name).read_text(encoding='utf-8')}```" in PAGE
    listed = re.findall(r"^\| `(\S+)`", PAGE[PAGE.index("## Your own") : PAGE.index("**The service**")], re.MULTILINE)
    assert {name.rstrip("/") for name in listed} <= {path.name for path in folder.iterdir()}


def test_it_answers_what_the_page_says(bento: Bento, folder: Path) -> None:
    with bento.client() as client:
        files = {"picture": ("blue.png", (folder / "blue.png").read_bytes(), "image/png")}
        answer = client.post("/classify", files=files).raise_for_status()
    assert f"```text\n{answer.text}\n```" in PAGE


def test_what_is_no_picture_is_refused(bento: Bento) -> None:
    with bento.client() as client:
        answer = client.post("/classify", files={"picture": ("x", b"no picture", "image/png")})
    assert (answer.status_code, answer.json()["error"][:27]) == (400, "expected an image (PNG, JPE")
