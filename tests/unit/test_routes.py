"""Management calls as requests, and what their answers mean, without a server."""

from __future__ import annotations

import json
from asyncio import CancelledError
from typing import Any

import pytest

from runners import EngineFailed, InternalError, InvalidInput, ModelNotFound, routes
from runners.errors import KINDS


@pytest.mark.parametrize(
    ("route", "request_line"),
    [
        (routes.server(), "GET /v2"),
        (routes.server("/health/ready"), "GET /v2/health/ready"),
        (routes.model("m", ""), "GET /v2/models/m"),
        (routes.model("m", 3, "/config"), "GET /v2/models/m/versions/3/config"),
        (routes.model("a/b c?#é%", "1"), "GET /v2/models/a%2Fb%20c%3F%23%C3%A9%25/versions/1"),
        (routes.statistics("", ""), "GET /v2/models/stats"),
        (routes.statistics("m", "2"), "GET /v2/models/m/versions/2/stats"),
        (routes.index(), "POST /v2/repository/index"),
        (routes.load("a b", None, None), "POST /v2/repository/models/a%20b/load"),
        (routes.unload("a b", dependents=False), "POST /v2/repository/models/a%20b/unload"),
        (routes.regions(""), "GET /v2/systemsharedmemory/status"),
        (routes.regions("r"), "GET /v2/systemsharedmemory/region/r/status"),
        (routes.register_region("r", "/k", 8, 0), "POST /v2/systemsharedmemory/region/r/register"),
        (routes.unregister_region(""), "POST /v2/systemsharedmemory/unregister"),
        (routes.log_settings(), "GET /v2/logging"),
        (routes.log_settings({}), "POST /v2/logging"),
        (routes.trace_settings(""), "GET /v2/trace/setting"),
        (routes.trace_settings("a b"), "GET /v2/models/a%20b/trace/setting"),
        (routes.trace_settings("m", {}), "POST /v2/models/m/trace/setting"),
        (routes.unregister_region("a/b"), "POST /v2/systemsharedmemory/region/a%2Fb/unregister"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_call_is_one_request(route: routes.Route, request_line: str) -> None:
    assert f"{route.method} {route.path}" == request_line


def body(route: routes.Route) -> Any:  # noqa: ANN401 - any JSON
    return json.loads(route.body)


def test_loading_sends_config_and_files_as_tritonclient_does() -> None:
    assert body(routes.load("m", None, None)) == {}
    assert body(routes.load("m", "{}", {"file:1/model.onnx": b"\0\1"})) == {
        "parameters": {"config": "{}", "file:1/model.onnx": "AAE="}
    }
    assert body(routes.unload("m", dependents=True)) == {"parameters": {"unload_dependents": True}}
    assert body(routes.register_region("r", "/k", 8, 4)) == {"key": "/k", "offset": 4, "byte_size": 8}


ROUTE = routes.model("m", "")


def test_settings_are_sent_as_they_are() -> None:
    assert body(routes.log_settings({"log_info": False})) == {"log_info": False}
    assert body(routes.trace_settings("", {"trace_rate": None})) == {"trace_rate": None}


def test_an_answer_is_read() -> None:
    assert routes.document(ROUTE, (200, "", b'{"a":1}')) == {"a": 1}
    assert routes.rows(ROUTE, (200, "", b"[]")) == []
    assert routes.succeeded((200, "", b""))
    assert not routes.succeeded((503, "model_not_ready", b""))


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_is_raised_as_its_kind(kind: str) -> None:
    raised = KINDS[kind].raised
    with pytest.raises(raised, match=r"^why$"):
        routes.document(ROUTE, (418, kind, b'{"error":"why"}'))


def test_a_failure_carries_its_status_and_its_model() -> None:
    with pytest.raises(ModelNotFound) as caught:
        routes.accepted(ROUTE, (500, "model_not_found", b'{"error":"why"}'))
    assert (caught.value.status, caught.value.model, caught.value.request_id) == (500, "m", None)


def test_a_cancelled_call_is_cancelled() -> None:
    with pytest.raises(CancelledError):
        routes.accepted(ROUTE, (400, "cancelled", b'{"error":"why"}'))


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
        routes.accepted(ROUTE, (502, "of_another_time", content))
    assert str(caught.value) == text


@pytest.mark.parametrize("content", [b"", b"<html>", b"[]", b"5", b"\xff"])
def test_an_answer_that_is_no_object_is_a_failure_of_the_server(content: bytes) -> None:
    with pytest.raises(EngineFailed, match=r"^the answer to GET /v2/models/m cannot be read, expected ") as caught:
        routes.document(ROUTE, (200, "", content))
    assert caught.value.model == "m"


def test_an_answer_that_is_no_list_is_a_failure_of_the_server() -> None:
    with pytest.raises(EngineFailed, match=r"expected a list$"):
        routes.rows(routes.index(), (200, "", b"{}"))


@pytest.mark.parametrize("name", ["", 5, None, "half a pair \ud800"])
def test_a_name_that_no_path_can_carry_is_refused(name: Any) -> None:  # noqa: ANN401 - what is tested
    with pytest.raises(InvalidInput, match=r"^model_name is .*, expected a name$"):
        routes.load(name, None, None)


@pytest.mark.parametrize("version", ["x", "-1", "1.0", " 1", "٣", 1.5, None, True, -1])
def test_a_version_that_is_no_number_is_refused(version: Any) -> None:  # noqa: ANN401 - what is tested
    with pytest.raises(InvalidInput, match=r"expected a number, or '' for the latest$"):
        routes.model("m", version)
