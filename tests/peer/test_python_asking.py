"""Python models that ask other models, on both servers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.peer.pair import Pair, Request, infer

pytestmark = pytest.mark.timeout(400)

WAYS = [
    "plainly",
    "async",
    "many",
    "one output",
    "no output",
    "a version",
    "raise",
    "strings",
    "streamed to nothing",
    "streamed from a plain model",
    "is ready",
    "version is ready",
]


def ask(way: str) -> Request:
    return infer("asking", {"WAY": np.array([way], object)})


@pytest.mark.parametrize("way", WAYS)
def test_a_model_asks_another_one(pair: Pair, way: str) -> None:
    pair.ask(ask(way)).are_the_same()
