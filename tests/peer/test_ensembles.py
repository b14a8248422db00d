"""Ensembles of Python models on both servers, and why some cannot be loaded."""

from __future__ import annotations

from typing import Final

import numpy as np
import pytest

from tests.peer.pair import Pair, Request, get, infer, post, tensor
from tests.peer.wrong_ensembles import WRONG

pytestmark = pytest.mark.timeout(400)

RESHAPED: Final = {
    "reshaped": (2, 2, 2),
    "reshaped_variable": (2, 3, 1),
    "reshaped_to_more": (2, 1, 1),
    "reshaped_to_rows": (2, 2),
}
"""Ensembles that reshape their own tensors, with the shape of an input"""
ENSEMBLES: Final = [
    *("both_lengths", "nested", "not_all_mapped", "optional_input", "sometimes_left_out", "streamed"),
    *RESHAPED,
]
NUMBERS: Final = {"ONE": np.array([1], np.int32), "TWO": np.array([1, 2], np.int32)}


def text(model: str, *texts: str, outputs: tuple[str, ...] = ()) -> Request:
    return infer(model, {"TEXT": np.array([[one] for one in texts], object)}, outputs=outputs)


@pytest.mark.parametrize("model", ENSEMBLES)
def test_metadata_and_configuration(pair: Pair, model: str) -> None:
    pair.ask(get(f"/v2/models/{model}")).are_the_same()
    answers = pair.ask(get(f"/v2/models/{model}/config"))
    triton, kushi = answers.triton.json(), answers.kushi.json()
    # newer than this Triton
    assert kushi["ensemble_scheduling"].pop("max_inflight_requests") == 0
    assert kushi == triton


@pytest.mark.parametrize("texts", [["abc"], ["grüezi", "x"], ["x"] * 8])
def test_strings_go_through_branches_that_meet(pair: Pair, texts: list[str]) -> None:
    answer = pair.ask(text("both_lengths", *texts)).are_the_same()
    outputs = {output["name"]: output["data"] for output in answer["outputs"]}
    assert outputs["LOUD"] == [one.upper() for one in texts]


@pytest.mark.parametrize(("texts", "status"), [([""], 500), (["busy"], 500), (["x" * 30], 400), (["x"] * 9, 400)])
def test_an_error_of_a_step_is_that_of_the_request(pair: Pair, texts: list[str], status: int) -> None:
    pair.ask(text("both_lengths", *texts)).are_the_same(status)


def test_steps_that_nobody_needs_are_not_run(pair: Pair) -> None:
    pair.ask(text("both_lengths", "", outputs=("LENGTH",))).are_the_same()


def test_what_does_not_fit_is_refused(pair: Pair) -> None:
    pair.ask(infer("both_lengths", {})).are_the_same(400)
    pair.ask(infer("both_lengths", {"TEXT": np.array([[1]], np.int32)})).are_the_same(400)
    pair.ask(infer("both_lengths", {"TEXT": np.array([["a", "b"]], object)})).are_the_same(400)
    pair.ask(text("both_lengths", "a", outputs=("NONE",))).are_the_same(400)


@pytest.mark.parametrize(("model", "shape"), RESHAPED.items())
def test_an_ensemble_reshapes_its_own_tensors(pair: Pair, model: str, shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    answer = pair.ask(infer(model, {"IN": values})).are_the_same()
    assert answer["outputs"][0]["data"] == (values + 1).reshape(-1).tolist()
    pair.ask(infer(model, {"IN": values[..., np.newaxis]})).are_the_same(400)


@pytest.mark.parametrize(
    "model", ["scores", "labelled", "labelled_itself", "labelled_nested", "labelled_nested_itself"]
)
def test_classes_of_an_ensemble(pair: Pair, model: str) -> None:
    scores = np.array([[1, 5, 2, 4], [9, 1, 8, 2]], np.float32)
    name, output = ("X", "Y") if model == "scores" else ("IN", "OUT")
    request = {
        "inputs": [tensor(name, scores)],
        "outputs": [{"name": output, "parameters": {"classification": 3}}],
    }
    pair.ask(post(f"/v2/models/{model}/infer", request)).are_the_same()


@pytest.mark.parametrize("names", [("ONE", "TWO"), ("ONE",)])
def test_an_optional_input_may_be_missing(pair: Pair, names: tuple[str, ...]) -> None:
    pair.ask(infer("optional_input", {name: NUMBERS[name] for name in names})).are_the_same()


def test_an_optional_input_may_be_without_a_tensor(pair: Pair) -> None:
    pair.ask(infer("not_all_mapped", {"ONE": NUMBERS["ONE"]})).are_the_same()


@pytest.mark.parametrize("x", [1, 0])
def test_an_optional_input_may_be_one_that_no_step_has_made(pair: Pair, x: int) -> None:
    pair.ask(infer("sometimes_left_out", {"X": np.array([x], np.int32)})).are_the_same()


@pytest.mark.parametrize(("x", "status"), [(1, 200), (0, 400)])
def test_an_input_that_no_step_has_made_is_missing(pair: Pair, x: int, status: int) -> None:
    pair.ask(infer("sometimes_missing", {"X": np.array([x], np.int32)})).are_the_same(status)


ODD: Final = {
    "good": 200,
    "empty shape": 200,
    "other shape": 400,
    "other type": 400,
    "text for a number": 400,
    "missing output": 400,
    "no output": 400,
    "raise": 500,
    "code NOT_FOUND": 404,
    "code UNAVAILABLE": 503,
    "error": 500,
}


@pytest.mark.parametrize(("what", "status"), ODD.items())
def test_a_step_that_gives_what_the_next_cannot_take(pair: Pair, what: str, status: int) -> None:
    pair.ask(infer("odd_steps", {"WHAT": np.array([what], object)})).are_the_same(status)


# Triton forgets a quotation mark, or names a part of a ring
OTHER_REASONS: Final = {
    "batching": ("failed to read text proto from", "'ensemble_scheduling' and 'dynamic_batching' exclude each other"),
    "unused_input": (
        "ensemble input 'MORE' for ensemble wrong_unused_input' is not used",
        "ensemble input 'MORE' for ensemble 'wrong_unused_input' is not used",
    ),
    "unmade_output": (
        "ensemble output 'MORE' for ensemble wrong_unmade_output' is not used",
        "ensemble output 'MORE' for ensemble 'wrong_unmade_output' is not used",
    ),
    "unmade_between": (
        "ensemble input 'TEXT' for ensemble wrong_unmade_between' is not used",
        "ensemble input 'TEXT' for ensemble 'wrong_unmade_between' is not used",
    ),
    "itself": (
        "circular dependency between ensembles: wrong_itself -> ... -> wrong_itself -> wrong_itself",
        "circular dependency between ensembles: wrong_itself -> wrong_itself",
    ),
    "ring_of_two": (
        "circular dependency between ensembles: wrong_ring_of_two -> ... -> wrong_other_of_two -> wrong_ring_of_two",
        "circular dependency between ensembles: wrong_other_of_two -> wrong_ring_of_two -> wrong_other_of_two",
    ),
    "other_of_two": (
        "circular dependency between ensembles: wrong_other_of_two -> ... -> wrong_ring_of_two -> wrong_other_of_two",
        "circular dependency between ensembles: wrong_other_of_two -> wrong_ring_of_two -> wrong_other_of_two",
    ),
    "broken_model": (
        "Model 'raising' loading failed with error: version 1 is at UNAVAILABLE state: Internal: ValueError: broken on",
        "Model 'raising' loading failed with error: ValueError: broken on purpose",
    ),
    # whichever is the first of a hash map
    "ring": ("' is unused in ensemble 'wrong_ring'", "' is unused in ensemble 'wrong_ring'"),
    "no_tensors": ("' is unused in ensemble 'wrong_no_tensors'", "' is unused in ensemble 'wrong_no_tensors'"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_why_an_ensemble_is_not_served(pair: Pair, fault: str) -> None:
    """Triton writes it into its log alone, we say it in the index"""
    name = f"wrong_{fault}"
    triton, kushi = (index[name] for index in pair.index())
    assert (triton, kushi["state"]) == ({"name": name}, "UNAVAILABLE")
    if fault in OTHER_REASONS:
        said, ours = OTHER_REASONS[fault]
        assert any(said in line for line in pair.peer.log.lines), said
        assert ours in kushi["reason"]
        return
    reason = kushi["reason"].rpartition("config.pbtxt: ")[2]
    assert any(line.endswith(f': {reason}"') for line in pair.peer.log.lines), reason
