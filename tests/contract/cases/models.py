"""Models and versions that are not served."""

from __future__ import annotations

from typing import Final

from tests.contract.cases.case import Case, Code
from tests.contract.cases.inputs import VALID
from tests.contract.requests import Infer, Tensor

MODEL_CASES: Final = [
    Case(
        "unknown model",
        Infer("missing", VALID),
        Code.NOT_FOUND,
        "Request for unknown model: 'missing' is not found",
    ),
    Case(
        "unknown version",
        Infer("add_sub", VALID, version="99"),
        Code.NOT_FOUND,
        "Request for unknown model: 'add_sub' version 99 is not found",
    ),
    Case(
        "version that the policy leaves out",
        Infer("specific_versions", [Tensor("INPUT0", "INT32", (1, 1), values=[1])], version="2"),
        Code.NOT_FOUND,
        "Request for unknown model: 'specific_versions' version 2 is not found",
    ),
    Case(
        "version zero",
        Infer("add_sub", VALID, version="0"),
        Code.NOT_FOUND,
        "Request for unknown model: 'add_sub' version 0 is not found",
    ),
    Case(
        "version beyond 64 bits",
        Infer("add_sub", VALID, version="99999999999999999999"),
        Code.INVALID_ARGUMENT,
        "failed to get model version from specified version string '99999999999999999999' (details: stol), "
        "version should be an integral value > 0",
    ),
]
