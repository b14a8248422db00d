"""The pretrained models that are packed with the service: which files they are, and of which package"""

import hashlib
import re
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
    locked = (ROOT / "requirements/models.txt").read_text(encoding="utf-8")
    versions = dict(re.findall(r"^(\S+)==(\S+)", locked, re.MULTILINE))
    wanted = tomllib.loads((ROOT / "requirements/models.toml").read_text(encoding="utf-8"))
    return [
        Model(name, package, versions[package], file, taken["licence"], _sha256(name))
        for package, taken in wanted.items()
        for file, name in taken["files"].items()
    ]


def _sha256(name: str) -> str:
    return hashlib.sha256((ROOT / "model_repository" / name / "1/model.onnx").read_bytes()).hexdigest()
