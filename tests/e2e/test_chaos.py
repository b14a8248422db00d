"""A few faults at random: every request has one end, every answer is right, and in the end all is whole."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Final

import pytest

from tests import models
from tests.e2e.bento import Bento, service_of
from tests.e2e.chaos import ROUTES, Chaos

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.timeout(180), pytest.mark.scheduled]

SECONDS: Final = 8.0
_LOG = logging.getLogger(__name__)


def test_whatever_dies_or_stands_still_every_answer_is_right_and_the_service_is_whole_again(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    _LOG.warning("make chaos ARGS='--seconds %g --seed %d'", SECONDS, seed)
    models.write_add_sub(tmp_path / "models")
    with Bento(service_of(tmp_path, tmp_path / "models")).until_ready() as bento:
        report = Chaos(bento, seed, _LOG.warning).run(SECONDS)
    # that nothing is left, stop() looks
    assert report.wrong == []
    assert report.faults
    assert all(report.good[route] for route in ROUTES)
