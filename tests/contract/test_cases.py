"""The table of the protocol, run over HTTP."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from runners.errors import KINDS
from tests.contract import requests, transports
from tests.contract.cases import CASES, EXPLICIT_CASES, Case, Http
from tests.contract.requests import Infer
from tests.raw_http import Connection, chunked, frame

if TYPE_CHECKING:
    from tests.raw_http import Response
    from tests.serving import Server


def ask(connection: Connection, case: Case) -> Response:
    if isinstance(case.request, Http):
        return connection.ask("POST", case.request.path, case.request.headers, case.request.body)
    headers, body = requests.body(case.request)
    return connection.ask("POST", requests.path(case.request.model, case.request.version), headers, body)


def valid(connection: Connection) -> Response:
    headers, body = requests.body(requests.Infer("add_sub", requests.ADD_SUB_INPUTS))
    return connection.ask("POST", requests.path("add_sub"), headers, body)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_answers_with_the_status_and_the_text(connection: Connection, case: Case) -> None:
    response = ask(connection, case)
    assert (response.status, response.error) == (case.code.http, case.text)
    assert response.header("retry-after") is None, "none of them is answered otherwise a little later"


def test_a_unix_socket_answers_the_same(server: Server) -> None:
    with Connection(server.http_socket) as connection:
        for case in CASES:
            response = ask(connection, case)
            assert (response.status, response.error) == (case.code.http, case.text), case.name


def in_chunks(request: Infer | Http) -> bytes:
    """The request with a body of two chunks, and with no word about its length."""
    if isinstance(request, Http):
        path, headers, body = request.path, [*request.headers], request.body
    else:
        path, (headers, body) = requests.path(request.model, request.version), requests.body(request)
    half = len(body) // 2
    parts = [part for part in (body[:half], body[half:]) if part]
    return frame("POST", path, [*headers, ("Transfer-Encoding", "chunked")], chunked(parts))


def test_a_body_in_chunks_is_answered_the_same(server: Server) -> None:
    with server.connect() as connection:
        for case in CASES:
            connection.send(in_chunks(case.request))
            response = connection.receive()
            assert (response.status, response.error) == (case.code.http, case.text), case.name
            assert valid(connection).status == 200, case.name


def of_clients() -> list[Case]:
    """The rows that arrays can bring about; what is not asked for comes as bytes there."""
    return [
        case
        for case in CASES
        if isinstance(case.request, Infer) and "JSON" not in case.name and transports.tensors(case.request.inputs)
    ]


@pytest.mark.parametrize("way", transports.CLIENTS)
@pytest.mark.parametrize("case", of_clients(), ids=lambda case: case.name)
def test_tritonclient_raises_the_status_and_the_text(server: Server, way: str, case: Case) -> None:
    assert isinstance(case.request, Infer)
    assert transports.refusal(server, way, case.request) == (case.code.http, case.text)


def test_most_rows_about_tensors_go_through_tritonclient() -> None:
    names = {case.name for case in of_clients()}
    assert {"unknown model", "one input missing", "wrong datatype", "wrong rank", "classes of BOOL"} <= names


@pytest.mark.parametrize("case", EXPLICIT_CASES, ids=lambda case: case.name)
def test_answers_the_same_where_models_are_loaded_on_demand(explicit_server: Server, case: Case) -> None:
    with explicit_server.connect() as connection:
        response = ask(connection, case)
        assert (response.status, response.error) == (case.code.http, case.text)
        assert connection.ask("GET", "/v2/health/live").status == 200


def test_an_error_names_its_kind(server: Server, explicit_server: Server) -> None:
    for place, cases in ((server, CASES), (explicit_server, EXPLICIT_CASES)):
        with place.connect() as connection:
            for case in cases:
                assert ask(connection, case).header("kushi-error") in KINDS, case.name


def test_every_case_has_a_name_of_its_own() -> None:
    for table in (CASES, EXPLICIT_CASES):
        names = [case.name for case in table]
        assert len(names) == len(set(names))


def test_an_error_body_is_one_compact_json_object(connection: Connection) -> None:
    for case in CASES:
        response = ask(connection, case)
        assert json.loads(response.body) == {"error": case.text}
        assert response.body.startswith(b'{"error":"')
        assert response.header("content-type") == "application/json"


def test_a_refused_request_leaves_the_connection_usable(server: Server) -> None:
    with server.connect() as connection:
        for case in CASES:
            ask(connection, case)
            assert valid(connection).status == 200, case.name
