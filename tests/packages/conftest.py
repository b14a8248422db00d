"""Kushi installed from dist/, the Bento of this repository, a user's directory with a package `runners` of its own"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.packages.environments import BUILT, install, run, venv
from tests.serving import ROOT

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Built"]

# both packages must be found: whoever gets the wrong one has no such attribute
_OWN = 'OWNER = "the user"\n'


@dataclass(frozen=True)
class Built:
    """A Bento in a store, and the Python of an environment with what it locks"""

    tag: str
    home: Path
    python: Path
    packed: frozenset[Path]
    """What is in it before it is served, which compiles it"""

    @property
    def folder(self) -> Path:
        return self.home / "bentos" / self.tag.replace(":", "/")


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment with the wheel and its extras"""
    made = venv(tmp_path_factory.mktemp("installed") / "venv")
    install(made, f"kushi[bento,cpu,uploads] @ {BUILT.as_uri()}")
    return made


@pytest.fixture(scope="session")
def bento(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("bento")
    arguments = ("variant=cpu", "base_image=debian:bookworm-slim", "python_version=3.11")
    options = [word for argument in arguments for word in ("--arg", argument)]
    tag = run(ROOT / "deploy/supply/bento-environment", folder, *options, cwd=ROOT).strip()
    source = folder / "home/bentos" / tag.replace(":", "/") / "src"
    packed = frozenset(path.relative_to(source) for path in source.rglob("*"))
    return Built(tag, folder / "home", folder / "venv/bin/python", packed)


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """The directory where programs run"""
    (tmp_path / "runners").mkdir()
    (tmp_path / "runners" / "__init__.py").write_text(_OWN, encoding="utf-8")
    return tmp_path
