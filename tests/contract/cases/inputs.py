"""Inputs and outputs by their names: missing, unknown, twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.contract.cases.case import ROW, UNKNOWN_ID, Case, Code
from tests.contract.requests import Infer, Output, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence


def int32(name: str, shape: Sequence[int] = (1, 16), raw: bytes = ROW) -> Tensor:
    return Tensor(name, "INT32", shape, raw=raw)


def add_sub(*inputs: Tensor, outputs: Sequence[Output] = (), id: str = "") -> Infer:  # noqa: A002 - its name there
    return Infer("add_sub", inputs, outputs, id=id)


VALID: Final = (int32("INPUT0"), int32("INPUT1"))

INPUT_CASES: Final = [
    Case(
        "no input at all",
        add_sub(),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}expected 2 inputs but got 0 inputs for model 'add_sub'. Got input(s) [], but missing required "
        "input(s) ['INPUT0','INPUT1']. Please provide all required input(s).",
    ),
    Case(
        "one input missing",
        add_sub(int32("INPUT0")),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}expected 2 inputs but got 1 inputs for model 'add_sub'. Got input(s) ['INPUT0'], but missing "
        "required input(s) ['INPUT1']. Please provide all required input(s).",
    ),
    Case(
        "an error names the request by its id",
        add_sub(int32("INPUT0"), id="seven"),
        Code.INVALID_ARGUMENT,
        "[request id: seven] expected 2 inputs but got 1 inputs for model 'add_sub'. Got input(s) ['INPUT0'], but "
        "missing required input(s) ['INPUT1']. Please provide all required input(s).",
    ),
    Case(
        "one wrong input beside none of the right ones",
        add_sub(int32("OTHER")),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}expected 2 inputs but got 1 inputs for model 'add_sub'. Got input(s) ['OTHER'], but missing "
        "required input(s) ['INPUT0','INPUT1']. Please provide all required input(s). The model has no input(s) "
        "['OTHER'].",
    ),
    Case(
        "an optional input does not stand in for a required one",
        Infer("optional", []),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}expected number of inputs between 1 and 3 but got 0 inputs for model 'optional'. Got input(s) "
        "[], but missing required input(s) ['INPUT0']. Please provide all required input(s).",
    ),
    Case(
        "more inputs than the model has",
        add_sub(*VALID, int32("OTHER")),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}expected 2 inputs but got 3 inputs for model 'add_sub'. Got input(s) "
        "['INPUT0','INPUT1','OTHER'], but missing required input(s) ]. Please provide all required input(s). The model "
        "has no input(s) ['OTHER'].",
    ),
    Case(
        "unknown input",
        add_sub(int32("INPUT0"), int32("OTHER")),
        Code.INVALID_ARGUMENT,
        "unexpected inference input 'OTHER' for model 'add_sub'",
    ),
    Case(
        "input twice",
        add_sub(int32("INPUT0"), int32("INPUT0")),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}input 'INPUT0' already exists in request",
    ),
    Case(
        "input twice, named by id",
        add_sub(int32("INPUT0"), int32("INPUT0"), id="a b"),
        Code.INVALID_ARGUMENT,
        "[request id: a b] input 'INPUT0' already exists in request",
    ),
    Case(
        "unknown output",
        add_sub(*VALID, outputs=[Output("OUTPUT0"), Output("OTHER")]),
        Code.INVALID_ARGUMENT,
        "unexpected inference output 'OTHER' for model 'add_sub'",
    ),
    Case(
        "output twice",
        add_sub(*VALID, outputs=[Output("OUTPUT0"), Output("OUTPUT0")]),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}output 'OUTPUT0' already exists in request",
    ),
    Case(
        "an unknown output is reported before a missing input",
        add_sub(int32("INPUT0"), outputs=[Output("OTHER")]),
        Code.INVALID_ARGUMENT,
        "unexpected inference output 'OTHER' for model 'add_sub'",
    ),
]
