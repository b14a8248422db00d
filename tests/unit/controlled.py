"""Engines whose models are loaded and unloaded, and what they say of them."""

import json
from pathlib import Path

from runners import Engine, EngineOptions, ModelOptions
from tests import models

__all__ = ["EXPLICIT", "index", "plus", "rows"]

EXPLICIT = EngineOptions(models=ModelOptions(control="explicit"))


def plus(repository: Path, name: str = "m", versions: tuple[int, ...] = (1,), text: str | None = None) -> None:
    models.write(repository, name, {version: models.plus_constant(version) for version in versions}, text)


def rows(engine: Engine) -> list[tuple[str, str, str, str]]:
    return [(model.name, model.version, model.state, model.reason) for model in engine.models()]


def index(engine: Engine, body: bytes = b"") -> object:
    status, kind, answer = engine._core.call("RepositoryIndex", body)
    assert (status, kind) == (200, "")
    return json.loads(answer)
