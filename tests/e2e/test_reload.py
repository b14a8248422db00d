"""``bentoml serve --reload``: what was written is served, by a new engine, and of the old one nothing is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import models
from tests.e2e.bento import START_S, Bento, service_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

ANSWER = 'return int((await self.models.add_sub.async_run(*rows))["OUTPUT0"][0, 0])'


@pytest.mark.clock
def test_a_change_of_the_code_restarts_the_service_and_its_engine(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    models.write_add_sub(repository)
    code = service_of(tmp_path, repository) / "service.py"
    written = code.read_text()
    assert ANSWER in written

    with Bento(tmp_path, "--reload").until_ready() as bento:

        def answer() -> int | None:
            try:
                found = bento.fetch("POST", "/add", [("content-type", "application/json")], b'{"one": 1, "other": 2}')
            except OSError:
                return None
            return found.json() if found.status == 200 else None

        assert answer() == 3
        first = bento.engine

        eventually(bento.watches_files, "it looks for changes", START_S)
        code.write_text(written.replace(ANSWER, "return -1"))
        eventually(lambda: answer() == -1 and bento.is_ready(), "the new code answers", START_S)
        assert bento.engine != first
        meeting = [path.suffix for path in bento.left()[1] if path.parent.name == "kushi"]
        assert sorted(meeting) == [".grpc", ".http", ".lifeline", ".local", ".presence"]
        assert bento.fetch("GET", "/v2/models/add_sub/ready").status == 200

        assert len(bento.workers("Reader")) == 2
        # that nothing is left at the end, stop() looks
