"""Where both servers, on a machine without a GPU, place the instances of Python models, and what these are told."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.peer.instances import PLACED, REFUSED, REFUSED_OTHERWISE
from tests.peer.pair import Pair, infer

pytestmark = pytest.mark.timeout(400)


@pytest.mark.parametrize("model", PLACED)
def test_an_instance_is_told_what_it_is(pair: Pair, model: str) -> None:
    answer = pair.ask(infer(model, {"X": np.ones(1, np.float32)})).are_the_same()
    told = json.loads(answer["outputs"][0]["data"][0])
    assert told["model_instance_kind"] == ("MODEL" if model == "placed_by_itself" else "CPU")
    assert told["input_on_cpu"]


@pytest.mark.parametrize("model", REFUSED)
def test_a_place_is_refused_with_its_words(pair: Pair, model: str) -> None:
    triton, kushi = (index[model]["reason"] for index in pair.index())
    assert kushi.endswith(triton.removeprefix("Invalid argument: ").removeprefix("Unsupported: "))


@pytest.mark.parametrize("model", REFUSED_OTHERWISE)
def test_a_gpu_is_refused_in_other_words(pair: Pair, model: str) -> None:
    _, *expected = REFUSED_OTHERWISE[model]
    for index, part in zip(pair.index(), expected, strict=True):
        assert index[model]["state"] == "UNAVAILABLE"
        assert part in index[model]["reason"]
