from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runners import Engine
from tests import models

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """What says that the engine lives"""
    repository = tmp_path_factory.mktemp("models")
    models.write_add_sub(repository)
    with Engine(repository) as engine:
        yield engine


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of an engine's socket"""
    return tmp_path / "engine"
