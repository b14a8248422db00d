from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from runners import Engine
from runners.bento.web.serializers import replace_serializers
from tests import models
from tests.bentoml_internals import ALL_SERDE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.bentoml_internals import Serde


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


@pytest.fixture
def registry() -> Iterator[dict[str, type[Serde]]]:
    """BentoML's serializers, with ours among them"""
    registry: Any = ALL_SERDE
    before = dict(registry)
    replace_serializers()
    yield registry
    registry.update(before)
