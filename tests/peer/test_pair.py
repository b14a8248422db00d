"""A peer that dies by itself is started once more"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.peer.pair import Pair, PeerDied, get

if TYPE_CHECKING:
    from pathlib import Path


def test_a_peer_that_dies_is_started_once_more(
    installed: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "models").mkdir()
    with Pair(tmp_path / "pair", tmp_path / "models") as pair:
        pair.peer.process.kill()
        assert pair.ask(get("/v2/health/ready")).triton.status == 200
        assert "tritonserver is started once more: it has died" in capsys.readouterr().err
        pair.peer.process.kill()
        with pytest.raises(PeerDied, match="tritonserver ended with -9"):
            pair.ask(get("/v2/health/ready"))
