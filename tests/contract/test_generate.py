"""Plain JSON in and out: `generate`, answered once, and `generate_stream`, answered by events."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

import pytest

from tests import models
from tests.raw_http import fetch

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.raw_http import Address, Response
    from tests.serving import Server

SUM, DIFFERENCE = list(range(1, 17)), list(range(-1, 15))
STREAM = "text/event-stream; charset=utf-8"


def ask(address: Address, model: str, document: object, *, verb: str = "generate", headers: Any = ()) -> Response:  # noqa: ANN401
    return fetch(address, "POST", f"/v2/models/{model}/{verb}", headers, json.dumps(document).encode())


def events(response: Response) -> list[Any]:
    """What a reader of server-sent events makes of the body."""
    assert response.header("content-type") == STREAM
    assert response.header("transfer-encoding") == "chunked"
    *blocks, rest = response.body.split(b"\n\n")
    assert rest == b""
    assert all(block.startswith(b"data: ") and b"\n" not in block for block in blocks)
    return [json.loads(block.removeprefix(b"data: ")) for block in blocks]


@pytest.fixture(params=["tcp", "unix"])
def address(server: Server, request: pytest.FixtureRequest) -> Address:
    return server.http if request.param == "tcp" else server.http_socket


def test_an_answer_has_the_outputs_by_name_in_order_of_the_names(address: Address) -> None:
    document = {"INPUT1": [1] * 16, "id": "a7", "INPUT0": list(range(16))}
    response = ask(address, "add_sub", document)
    answer = {"OUTPUT0": SUM, "OUTPUT1": DIFFERENCE, "id": "a7", "model_name": "add_sub", "model_version": "1"}
    assert (response.status, response.header("content-type")) == (200, "application/json")
    assert response.body == json.dumps(answer, separators=(",", ":")).encode()


def test_a_model_that_answers_once_streams_one_event(address: Address) -> None:
    response = ask(address, "identity_bytes", {"INPUT0": "one\ntwo"}, verb="generate_stream")
    answer = {"OUTPUT0": "one\ntwo", "model_name": "identity_bytes", "model_version": "1"}
    assert (response.status, events(response)) == (200, [answer])
    assert response.body == b"data: " + json.dumps(answer, separators=(",", ":")).encode() + b"\n\n"


@pytest.mark.parametrize(
    ("model", "given", "expected"),
    [
        ("identity_bytes", "text", "text"),
        ("identity_bytes", ["text"], "text"),
        ("identity_bytes", ["a", "", "\u4e32"], ["a", "", "\u4e32"]),
        ("identity_bytes", [["a"], ["b"]], ["a", "b"]),
        ("identity_bool", True, True),
        ("identity_bool", [True, False], [True, False]),
        ("identity_uint64", 2**64 - 1, 2**64 - 1),
        ("identity_int8", [-1, 1], [-1, 1]),
        ("identity_fp32", 0.5, 0.5),
        ("identity_fp64", [1, 2.5], [1.0, 2.5]),
        ("scalar_batched", 2.5, 5.0),
        ("scalar_batched", [1, 2, 3], [2.0, 4.0, 6.0]),
        ("scalar", 2.5, 5.0),
        ("reshaped", list(range(32)), list(range(32))),
        ("image", list(range(12)), [float(value) for value in range(12)]),
        ("nonzero", [0, 0], []),
    ],
)
def test_elements_become_the_shape_of_the_model_and_one_comes_without_a_list(
    server: Server, model: str, given: object, expected: object
) -> None:
    response = ask(server.http, model, {"INPUT0": given})
    assert response.status == 200, response.body
    assert response.json()["OUTPUT0"] == expected


def test_a_list_in_a_list_of_strings_has_as_many_strings_as_the_outer_one(server: Server) -> None:
    response = ask(server.http, "identity_bytes", {"INPUT0": [["a", "b"], ["c"]]})
    assert (response.status, response.error) == (
        400,
        (
            "[request id: <id_unknown>] unexpected number of string elements 3 for inference input 'INPUT0' for model "
            "'identity_bytes', expecting 2"
        ),
    )


def test_other_keys_are_parameters_and_parameters_may_be_inputs(server: Server) -> None:
    given = {"temperature": 0.5, "stop": "x", "n": 1, "echo": True, "timeout": "soon", "triton_x": 1}
    for document in (
        {"INPUT0": "a", **given},
        {"INPUT0": "a", "parameters": given},
        {"parameters": {"INPUT0": "a", **given}, "id": ""},
    ):
        response = ask(server.http, "identity_bytes", document)
        assert response.json() == {"OUTPUT0": "a", "model_name": "identity_bytes", "model_version": "1"}


def test_an_optional_input_may_be_left_out(server: Server) -> None:
    assert ask(server.http, "optional", {"INPUT0": 1, "INPUT1": 2}).json()["OUTPUT0"] == 1003


def test_a_version_may_be_named(server: Server) -> None:
    response = ask(server.http, "all_versions/versions/2", {"INPUT0": 40})
    assert response.json() == {"OUTPUT0": 42, "model_name": "all_versions", "model_version": "2"}


def test_an_error_of_the_model_is_the_status_of_both_and_the_event_of_a_stream(server: Server) -> None:
    once = ask(server.http, "gather", {"INDEX": 99})
    streamed = ask(server.http, "gather", {"INDEX": 99}, verb="generate_stream")
    assert once.status == streamed.status == 500
    assert once.header("kushi-error") == streamed.header("kushi-error") == "engine_failed"
    assert once.header("content-type") == "application/json"
    assert events(streamed) == [{"error": once.error}]


def test_a_deadline_that_passes_ends_a_stream_with_its_status(server: Server) -> None:
    headers = [("kushi-timeout-us", "1")]
    once = ask(server.http, "slow", {"STEPS": 0}, headers=headers)
    assert (once.status, once.error) == (503, "Request timeout expired")
    streamed = ask(server.http, "slow", {"STEPS": 0}, verb="generate_stream", headers=headers)
    assert (streamed.status, events(streamed)) == (503, [{"error": "Request timeout expired"}])


def test_timings_are_told_when_asked_for(server: Server) -> None:
    response = ask(server.http, "identity_bytes", {"INPUT0": "a"}, headers=[("kushi-timings", "true")])
    timings = response.header("kushi-timings")
    assert timings is not None
    assert len(timings.split(",")) == 4


def test_inputs_are_bounded_together(start_server: StartServer, repository: Path) -> None:
    text = models.config(
        "add_sub",
        [("INPUT0", "FP64", [-1]), ("INPUT1", "FP64", [-1])],
        [("OUTPUT0", "FP64", [-1]), ("OUTPUT1", "FP64", [-1])],
        max_batch_size=8,
    )
    models.write(repository, "add_sub", models.add_sub(["batch", "n"], "FP64"), text)
    server = start_server(repository, "--http-max-input-size=100")
    response = ask(server.http, "add_sub", {"INPUT0": [1] * 7, "INPUT1": [1] * 7})
    assert (response.status, response.error) == (
        400,
        (
            "request size of 56 bytes with input 'INPUT1' of size 56 bytes exceeds the maximum allowed input size of "
            "100. Use --http-max-input-size to increase the limit."
        ),
    )
    assert ask(server.http, "add_sub", {"INPUT0": [1] * 6, "INPUT1": [1] * 6}).status == 200


def test_a_long_document_is_read_aside(server: Server) -> None:
    values = [float(value) for value in range(100_000)]
    assert ask(server.http, "identity_fp32", {"INPUT0": values}).json()["OUTPUT0"] == values


def test_both_go_on_over_one_connection_of_the_standard_library(server: Server) -> None:
    connection = HTTPConnection(*server.http, timeout=30)
    try:
        for verb in ("generate_stream", "generate", "generate_stream"):
            connection.request("POST", f"/v2/models/identity_bytes/{verb}", json.dumps({"INPUT0": verb}))
            response = connection.getresponse()
            body = response.read().decode()
            assert response.status == 200
            assert json.loads(body.removeprefix("data: "))["OUTPUT0"] == verb
    finally:
        connection.close()
