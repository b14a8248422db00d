"""What an endpoint logs with `bentoml.monitor`, beside what the engine counts of the same predictions"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests import models
from tests.e2e.bento import Bento
from tests.integration.test_metrics import families, values
from tests.raw_http import fetch
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

_SERVICE = """
import bentoml
import numpy as np

from runners.bento import depends, engine, service

Models = engine({repository!r}, name="Models")


@service(name="Watched")
class Watched:
    models = depends(Models)

    @bentoml.api
    async def shift(self, number: int) -> int:
        found = int((await self.models.identity.async_run(np.array([[number]], np.int64)))["OUTPUT0"].item())
        with bentoml.monitor("shifted") as monitor:
            monitor.log(number, name="number", role="feature", data_type="numerical")
            monitor.log(found, name="found", role="prediction", data_type="categorical")
        return found
"""


def logged(folder: Path) -> Iterator[dict[str, Any]]:
    for path in (folder / "monitoring" / "shifted" / "data").rglob("*.log*"):
        for line in path.read_text().splitlines():
            yield json.loads(line)


def test_predictions_are_logged_by_the_endpoint_and_counted_by_the_engine(tmp_path: Path) -> None:
    extra = 'parameters { key: "kushi.monitor" value { string_value: "OUTPUT0" } }'
    text = models.config(
        "identity", [("INPUT0", "INT64", [1])], [("OUTPUT0", "INT64", [1])], max_batch_size=8, extra=extra
    )
    models.write(tmp_path / "models", "identity", models.identity("INT64", ("batch", 1)), text)
    (tmp_path / "service.py").write_text(_SERVICE.format(repository=str(tmp_path / "models")))
    with Bento(tmp_path).until_ready() as bento, bento.client() as client:
        for number in (7, 7, 3):
            assert client.post("/shift", json={"number": number}).raise_for_status().json() == number
        eventually(lambda: len([*logged(tmp_path)]) == 3, "three predictions are logged")
        page = fetch(("127.0.0.1", bento.port), "GET", "/metrics").body.decode()
    assert [(one["number"], one["found"]) for one in logged(tmp_path)] == [(7, 7), (7, 7), (3, 3)]
    counted = values(families(page)["kushi_prediction_classes"], model="identity", output="OUTPUT0")
    assert counted == {"_total7": 2, "_total3": 1}
