"""How Python models are loaded by both servers: what they complete, and why they are not served."""

from __future__ import annotations

import numpy as np
import pytest

from tests.peer.pair import Pair, get, infer, without_own_lines

pytestmark = pytest.mark.timeout(400)

COMPLETED = ["completed", "completed_decoupled", "completed_more"]
REASONS = [
    "completed_otherwise",
    "completed_to_less",
    "completed_with_errors",
    "completed_with_surplus",
    "completed_without_dims",
    "exiting",
    "no_import",
    "raising",
    "raising_of_the_api",
]
# ours name the file, or the value that is wrong
OTHER_REASONS = {
    "completed_to_nothing": (
        "Internal: auto_complete_config function in model 'completed_to_nothing' must return a valid pb.ModelConfig",
        "TritonModelException: auto_complete_config function in model 'completed_to_nothing' must return a valid",
    ),
    "completed_with_no_type": (
        "Not found: model configuration is not provided for model 'completed_with_no_type'",
        "Invalid enum value TYPE_NONE for enum type inference.DataType at ModelConfig.input[0].data_type.",
    ),
    "no_class": ("module '1.model' has no attribute 'TritonPythonModel'", "1/model.py' has no class TritonPythonModel"),
    "no_syntax": (
        "Internal: SyntaxError: '(' was never closed (model.py, line 1)",
        "SyntaxError: '(' was never closed (model.py, line 1)",
    ),
}


# it asks another model in `initialize`, which it may here
EARLY = "asking_too_early"


@pytest.mark.parametrize("model", COMPLETED)
def test_what_a_model_completes_is_served(pair: Pair, model: str) -> None:
    pair.ask(get(f"/v2/models/{model}")).are_the_same()
    pair.ask(get(f"/v2/models/{model}/config")).are_the_same()


def test_a_model_that_has_completed_itself_answers(pair: Pair) -> None:
    x = {"X": np.ones((3, 1, 2), np.float32)}
    pair.ask(infer("completed", x)).are_the_same()
    pair.ask(infer("completed", {"X": np.ones((5, 1, 2), np.float32)})).are_the_same(400)


@pytest.mark.parametrize("model", REASONS)
def test_why_a_model_is_not_served(pair: Pair, model: str) -> None:
    """Triton puts its status before the reason, we put the file there, or the process that has failed"""
    triton, kushi = (index[model] for index in pair.index())
    assert (triton["state"], triton["version"]) == (kushi["state"], kushi["version"]) == ("UNAVAILABLE", "1")
    reason = without_own_lines(triton["reason"].removeprefix("Internal: "))
    assert without_own_lines(kushi["reason"]).endswith(reason)


@pytest.mark.parametrize(("model", "reasons"), OTHER_REASONS.items())
def test_why_a_model_is_not_served_in_other_words(pair: Pair, model: str, reasons: tuple[str, str]) -> None:
    for index, reason in zip(pair.index(), reasons, strict=True):
        assert index[model]["state"] == "UNAVAILABLE"
        assert reason in index[model]["reason"]


def test_a_model_asks_another_one_in_initialize_here_alone(pair: Pair) -> None:
    triton, kushi = (index[EARLY] for index in pair.index())
    assert "BLS is only supported during the 'execute' function." in triton["reason"]
    assert (triton["state"], kushi["state"]) == ("UNAVAILABLE", "READY")


def test_what_is_served_is_ready(pair: Pair) -> None:
    triton, kushi = pair.index()
    ready = {name for name, row in triton.items() if row.get("state") == "READY"}
    assert {name for name, row in kushi.items() if row["state"] == "READY"} == {*ready, EARLY}
    assert set(triton) == set(kushi)
    assert "raising" not in ready
