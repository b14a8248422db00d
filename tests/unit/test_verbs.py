"""Management calls as verbs, and what their answers mean, without a server."""

from __future__ import annotations

import json
from asyncio import CancelledError
from typing import Any

import pytest

from runners import EngineFailed, InternalError, InvalidInput, ModelNotFound, verbs
from runners.errors import KINDS
from runners.verbs import Verb


@pytest.mark.parametrize(
    ("verb", "name", "arguments"),
    [
        (verbs.model("ModelReady", "m", ""), "ModelReady", {"name": "m", "version": ""}),
        (verbs.model("ModelConfig", "m", 3), "ModelConfig", {"name": "m", "version": "3"}),
        (verbs.model("ModelMetadata", "a/b c?#é%", "1"), "ModelMetadata", {"name": "a/b c?#é%", "version": "1"}),
        (verbs.statistics("", ""), "ModelStatistics", {}),
        (verbs.statistics("m", "2"), "ModelStatistics", {"name": "m", "version": "2"}),
        (verbs.load("a b", None, None), "RepositoryModelLoad", {"model_name": "a b"}),
        (
            verbs.load("m", "{}", {"file:1/model.onnx": b"\0\1"}),
            "RepositoryModelLoad",
            {"model_name": "m", "parameters": {"config": "{}", "file:1/model.onnx": "AAE="}},
        ),
        (
            verbs.unload("m", dependents=True),
            "RepositoryModelUnload",
            {"model_name": "m", "parameters": {"unload_dependents": True}},
        ),
        (verbs.region("SystemSharedMemoryStatus", ""), "SystemSharedMemoryStatus", {"name": ""}),
        (
            verbs.register_region("r", "/k", 8, 4),
            "SystemSharedMemoryRegister",
            {"name": "r", "key": "/k", "offset": 4, "byte_size": 8},
        ),
        (verbs.log_settings(), "LogSettings", {}),
        (verbs.log_settings({"log_info": False}), "LogSettings", {"settings": {"log_info": False}}),
        (verbs.trace_settings("a b"), "TraceSetting", {"model_name": "a b"}),
        (
            verbs.trace_settings("", {"trace_rate": None}),
            "TraceSetting",
            {"model_name": "", "settings": {"trace_rate": None}},
        ),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_call_is_a_name_and_arguments(verb: Verb, name: str, arguments: dict[str, Any]) -> None:
    assert (verb.name, json.loads(verb.arguments_json())) == (name, arguments)


ABOUT_M = verbs.model("ModelMetadata", "m", "")


def test_an_answer_is_read() -> None:
    assert verbs.document(ABOUT_M, (200, "", b'{"a":1}')) == {"a": 1}
    assert verbs.rows(ABOUT_M, (200, "", b"[]")) == []
    assert verbs.succeeded((200, "", b""))
    assert verbs.succeeded((200, "", b"true"))
    assert not verbs.succeeded((200, "", b"false"))
    assert not verbs.succeeded((503, "model_not_ready", b""))


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_is_raised_as_its_kind(kind: str) -> None:
    raised = KINDS[kind].raised
    with pytest.raises(raised, match=r"^why$"):
        verbs.document(ABOUT_M, (418, kind, b'{"error":"why"}'))


def test_a_failure_carries_its_status_and_its_model() -> None:
    with pytest.raises(ModelNotFound) as caught:
        verbs.accepted(ABOUT_M, (500, "model_not_found", b'{"error":"why"}'))
    assert (caught.value.status, caught.value.model, caught.value.request_id) == (500, "m", None)


def test_a_cancelled_call_is_cancelled() -> None:
    with pytest.raises(CancelledError):
        verbs.accepted(ABOUT_M, (400, "cancelled", b'{"error":"why"}'))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"<html>Bad Gateway</html>", "<html>Bad Gateway</html>"),
        (b'{"message":"no"}', '{"message":"no"}'),
        (b"", "the server answered with status 502"),
        (b"\xff", "�"),
    ],
)
def test_a_failure_in_no_words_of_the_protocol_is_shown_as_it_is(content: bytes, text: str) -> None:
    with pytest.raises(InternalError) as caught:
        verbs.accepted(ABOUT_M, (502, "of_another_time", content))
    assert str(caught.value) == text


@pytest.mark.parametrize("content", [b"", b"<html>", b"[]", b"5", b"\xff"])
def test_an_answer_that_is_no_object_is_a_failure_of_the_server(content: bytes) -> None:
    with pytest.raises(EngineFailed, match=r"^the answer to ModelMetadata cannot be read, expected ") as caught:
        verbs.document(ABOUT_M, (200, "", content))
    assert caught.value.model == "m"


def test_an_answer_that_is_no_list_is_a_failure_of_the_server() -> None:
    with pytest.raises(EngineFailed, match=r"expected a list$"):
        verbs.rows(Verb("RepositoryIndex"), (200, "", b"{}"))


@pytest.mark.parametrize("name", ["", 5, None, "half a pair \ud800"])
def test_a_name_that_is_no_text_is_refused(name: Any) -> None:  # noqa: ANN401 - what is tested
    with pytest.raises(InvalidInput, match=r"^model_name is .*, expected a name$"):
        verbs.load(name, None, None)


@pytest.mark.parametrize("version", ["x y", "1x", "a" * 65, "-1", "1.0", " 1", "٣", 1.5, None, True, -1])
def test_a_version_that_is_no_number_is_refused(version: Any) -> None:  # noqa: ANN401 - what is tested
    with pytest.raises(InvalidInput, match=r"expected a number, a label of the model, or '' for the latest$"):
        verbs.model("ModelReady", "m", version)
