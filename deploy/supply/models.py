"""The pretrained models that are packed with the service: which files they are, and of which package"""

import hashlib
import tomllib
from pathlib import Path
from typing import NamedTuple

__all__ = ["Model", "packed"]

ROOT = Path(__file__).parents[2]


class Model(NamedTuple):
    name: str
    package: str
    version: str
    file: str
    """Of the package"""
    licence: str
    sha256: str


def packed() -> list[Model]:
    wanted = tomllib.loads((ROOT / "requirements/models.toml").read_text(encoding="utf-8"))
    return [
        Model(place.split("/")[0], package, taken["version"], file, taken["licence"], _sha256(place))
        for package, taken in wanted.items()
        for file, place in taken["files"].items()
    ]


def _sha256(place: str) -> str:
    return hashlib.sha256((ROOT / "model_repository" / place).read_bytes()).hexdigest()
