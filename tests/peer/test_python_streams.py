"""Decoupled models on both servers."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

from tests.peer.pair import Pair, generate, infer
from tests.raw_http import Address, Connection, fetch, frame
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(400)


@pytest.mark.parametrize("count", [0, 1, 3, 100])
@pytest.mark.parametrize("model", ["repeat", "asking_decoupled", "streamed"])
def test_each_response_is_an_event(pair: Pair, model: str, count: int) -> None:
    events = pair.ask(generate(model, {"N": count}, stream=True)).are_the_same()
    assert len(events) == count


def test_an_error_behind_a_response(pair: Pair) -> None:
    first, error = pair.ask(generate("repeat", {"N": -1}, stream=True)).are_the_same()
    assert (first["I"], error) == (-1, {"error": "N must not be negative"})


def test_one_response_may_be_asked_for_without_a_stream(pair: Pair) -> None:
    assert pair.ask(generate("repeat", {"N": 1})).are_the_same()["I"] == 0


@pytest.mark.parametrize(("model", "name"), [("repeat", "N"), ("completed_decoupled", "X"), ("streamed", "N")])
def test_infer_takes_one_response_alone(pair: Pair, model: str, name: str) -> None:
    array = np.array(["a"], object) if name == "X" else np.ones(1, np.int32)
    pair.ask(infer(model, {name: array})).are_the_same(501)


def test_a_plain_model_is_asked_in_the_same_ways(pair: Pair) -> None:
    for stream in (False, True):
        pair.ask(generate("shout", {"TEXT": "grüezi"}, stream=stream)).are_the_same()


@pytest.mark.parametrize("inputs", [{}, {"N": [1, 2]}, {"N": "x"}, {"M": 1, "N": 1}])
def test_inputs_that_do_not_fit(pair: Pair, inputs: dict[str, object]) -> None:
    answers = pair.ask(generate("repeat", inputs))
    answers.are_the_same(answers.triton.status)


def cancelled(address: Address) -> int:
    document = json.dumps({"STREAMS": False}).encode()
    answer = fetch(address, "POST", "/v2/models/cancelled/generate", (), document)
    return int(answer.json()["CANCELLED"])


def has_cancelled(address: Address) -> bool:
    return cancelled(address) == 1


def test_a_client_that_goes_cancels_its_stream(pair: Pair) -> None:
    for address in (pair.triton, pair.kushi):
        with Connection(address) as connection:
            connection.send(
                frame("POST", "/v2/models/cancelled/generate_stream", (), json.dumps({"STREAMS": True}).encode())
            )
            # the first event is here
            connection._until(b"CANCELLED")
            assert cancelled(address) == 0
        eventually(partial(has_cancelled, address), "the model knows that its client has gone")
