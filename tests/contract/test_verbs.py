"""The table of the verbs, run over every way a call can go: the same answers, and the same errors in all they say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from runners.errors import KINDS
from tests.contract.verbs import ANSWERS, HALF, REFUSALS, Answer, Call, Refusal

if TYPE_CHECKING:
    from runners import Result
    from runners.calls import Calls

Ask = Callable[["Calls", Call], "Result"]


def ask(calls: Calls, call: Call) -> Result:
    return calls.infer(call.model, *call.inputs, **call.options)


def ask_async(calls: Calls, call: Call) -> Result:
    async def asked() -> Result:
        return await calls.async_infer(call.model, *call.inputs, **call.options)

    return asyncio.run(asked())


def ask_handle(calls: Calls, call: Call) -> Result:
    """A model that has no name has no handle either"""
    if not isinstance(call.model, str):
        return ask(calls, call)
    options = dict(call.options)
    return calls.model(call.model, options.pop("model_version", "")).run(*call.inputs, **options)


def ask_handle_async(calls: Calls, call: Call) -> Result:
    if not isinstance(call.model, str):
        return ask_async(calls, call)

    async def asked() -> Result:
        options = dict(call.options)
        return await calls.model(call.model, options.pop("model_version", "")).async_run(*call.inputs, **options)

    return asyncio.run(asked())


all_forms = pytest.mark.parametrize(
    "ask", [ask, ask_async, ask_handle, ask_handle_async], ids=["sync", "async", "handle", "async-handle"]
)


def described(error: BaseException) -> dict[str, Any]:
    """All that a program can see of an error."""
    return {
        "class": type(error),
        "text": str(error),
        "cause": (type(error.__cause__), str(error.__cause__)),
        **{name: getattr(error, name) for name in ("kind", "status", "retryable", "model", "request_id")},
    }


@all_forms
@pytest.mark.parametrize("row", ANSWERS, ids=lambda row: row.name)
def test_the_same_call_has_the_same_answer(calls: Calls, ask: Ask, row: Answer) -> None:
    result = ask(calls, row.call)
    assert (result.model_name, result.model_version, result.request_id) == (row.call.model, row.version, "")
    assert set(result) == set(row.outputs)
    for name, expected in row.outputs.items():
        np.testing.assert_array_equal(result[name], expected, strict=True)


@all_forms
@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: row.name)
def test_the_same_call_fails_in_the_same_words(calls: Calls, ask: Ask, row: Refusal) -> None:
    with pytest.raises(row.raised) as caught:
        ask(calls, row.call)
    kind = KINDS[row.raised.kind]
    model, request_id = row.call.model, row.call.options.get("request_id")
    assert described(caught.value) == {
        "class": row.raised,
        "text": row.text,
        "cause": (type(None), "None"),
        "kind": row.raised.kind,
        "status": kind.status,
        "retryable": kind.retryable,
        "model": model if isinstance(model, str) else None,
        "request_id": request_id if isinstance(request_id, str) and request_id != HALF else None,
    }


def test_every_row_has_a_name_of_its_own() -> None:
    names = [row.name for row in ANSWERS] + [row.name for row in REFUSALS]
    assert len(names) == len(set(names))


def test_most_of_the_protocols_table_about_tensors_is_in_this_one() -> None:
    names = {row.name for row in REFUSALS}
    assert {"unknown model", "one input missing", "wrong datatype", "wrong rank", "batch too large"} <= names
