"""What `kushi new` writes without a model of one's own, served"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runners.cli import main
from tests.e2e.bento import Bento

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("own") / "colours"
    assert main(["new", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def bento(folder: Path) -> Iterator[Bento]:
    with Bento(folder).until_ready() as running:
        yield running


def test_it_classifies(bento: Bento, folder: Path) -> None:
    with bento.client() as client:
        files = {"picture": ("blue.png", (folder / "blue.png").read_bytes(), "image/png")}
        answer = client.post("/classify", files=files).raise_for_status()
    assert answer.json() == {"blue": 0.922, "green": 0.608, "red": 0.54}


def test_what_is_no_picture_is_refused(bento: Bento) -> None:
    with bento.client() as client:
        answer = client.post("/classify", files={"picture": ("x", b"no picture", "image/png")})
    assert (answer.status_code, answer.json()["error"][:27]) == (400, "expected an image (PNG, JPE")
