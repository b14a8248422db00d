"""One service that asks another, and both the same engine: among them no pickle is spoken either."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from tests import models
from tests.e2e.bento import Bento

if TYPE_CHECKING:
    from pathlib import Path

_SERVICE: Final = """
from pathlib import Path

import bentoml
import numpy as np
from pydantic import BaseModel
from runners.bento import depends, engine, service

Models = engine({repository!r}, name="Models")


class Named(BaseModel):
    name: str


@service(name="Behind", workers=1)
class Behind:
    models = depends(Models)

    @bentoml.api
    async def doubled(self, row: np.ndarray) -> np.ndarray:
        row = row.astype(np.int32)
        return (await self.models.add_sub.async_run(row, row))["OUTPUT0"]

    @bentoml.api
    async def named(self, given: str, file: Path) -> Named:
        return Named(name=given + file.read_text())


@bentoml.service(name="Plain", workers=1)
class Plain:
    @bentoml.api
    async def tripled(self, row: np.ndarray) -> np.ndarray:
        return 3 * row


@service(name="Front", workers=1)
class Front:
    models = depends(Models)
    plain = bentoml.depends(Plain)
    behind = bentoml.depends(Behind)

    @bentoml.api
    async def fourfold(self) -> list[list[int]]:
        row = np.arange(16, dtype=np.int32).reshape(1, 16)
        row = (await self.models.add_sub.async_run(row, row))["OUTPUT0"]
        return np.asarray(await self.behind.to_async.doubled(row)).astype(int).tolist()

    @bentoml.api
    async def threefold(self) -> list[int]:
        return np.asarray(await self.plain.to_async.tripled(np.arange(4))).astype(int).tolist()

    @bentoml.api
    def named(self) -> str:
        return self.behind.to_sync.named("one", Path(__file__).with_name("file")).name
"""


def test_a_service_asks_another_one(tmp_path: Path) -> None:
    models.write_add_sub(tmp_path / "models")
    (tmp_path / "service.py").write_text(_SERVICE.format(repository=str(tmp_path / "models")))
    (tmp_path / "file").write_text(", two")
    with Bento(tmp_path, "service:Front").until_ready() as bento:
        answer = bento.fetch("POST", "/fourfold", (), b"{}")
        assert (answer.status, json.loads(answer.body)) == (200, [[4 * number for number in range(16)]])
        answer = bento.fetch("POST", "/threefold", (), b"{}")
        assert (answer.status, json.loads(answer.body)) == (200, [0, 3, 6, 9])
        answer = bento.fetch("POST", "/named", (), b"{}")
        assert (answer.status, answer.body) == (200, b"one, two")
