"""What both servers answer when a model does what it should not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.peer.pair import Pair, Request, infer

pytestmark = pytest.mark.timeout(400)

RETURNS = ["too few", "too many", "no list", "tuple", "list of text"]
RAISES = [
    "raise",
    "raise empty",
    "raise lines",
    "raise model error",
    "raise key error",
    "raise not implemented",
    "raise non-ASCII",
    "nameless",
    "what it does not know",
]
CODES = {
    "UNKNOWN": 400,
    "INTERNAL": 500,
    "NOT_FOUND": 404,
    "INVALID_ARG": 400,
    "UNAVAILABLE": 503,
    "UNSUPPORTED": 501,
    "ALREADY_EXISTS": 400,
    "CANCELLED": 400,
}
ODD = [
    "good",
    "missing output",
    "no output",
    "surplus output",
    "wrong name",
    "other order",
    "other shape",
    "empty shape",
    "not contiguous",
    "scalar",
    "other type",
    "text for a number",
    "number for a text",
    "str",
    "bytes of NumPy",
    "numbers as objects",
    "undecodable",
]


def misbehave(what: str, *outputs: str) -> Request:
    return infer("misbehaving", {"WHAT": np.array([what], object)}, outputs=outputs)


@pytest.mark.parametrize("what", RETURNS)
def test_what_execute_must_not_return(pair: Pair, what: str) -> None:
    pair.ask(misbehave(what)).are_the_same(500)


@pytest.mark.parametrize("what", RAISES)
def test_an_exception(pair: Pair, what: str) -> None:
    """With the lines that it has passed"""
    error = pair.ask(misbehave(what)).are_the_same(500)["error"]
    assert error.startswith("Failed to process the request(s) for model 'misbehaving_0', message: ")
    assert "model.py(" in error.splitlines()[-1]


@pytest.mark.parametrize("what", ["error", "error of old", "error beside outputs"])
def test_an_error_for_a_response(pair: Pair, what: str) -> None:
    assert pair.ask(misbehave(what)).are_the_same(500) == {"error": "on purpose"}


@pytest.mark.parametrize(("code", "status"), CODES.items())
def test_the_code_of_an_error_is_the_status(pair: Pair, code: str, status: int) -> None:
    pair.ask(misbehave(f"code {code}")).are_the_same(status)


@pytest.mark.parametrize("what", ODD)
def test_odd_outputs_are_let_pass(pair: Pair, what: str) -> None:
    pair.ask(misbehave(what)).are_the_same()


@pytest.mark.parametrize("what", ["missing output", "wrong name", "surplus output"])
@pytest.mark.parametrize("output", ["SAID", "NUMBER"])
def test_odd_outputs_that_are_asked_for(pair: Pair, what: str, output: str) -> None:
    pair.ask(misbehave(what, output)).are_the_same()


def test_numbers_of_half_precision_that_nobody_configured(pair: Pair) -> None:
    pair.ask(misbehave("half precision")).are_the_same(400)


def test_a_class_without_execute(pair: Pair) -> None:
    pair.ask(infer("no_execute", {"X": np.ones(1, np.float32)})).are_the_same(500)
