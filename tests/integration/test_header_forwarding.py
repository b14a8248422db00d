"""Headers as parameters (`--http-header-forward-pattern`), as an engine in Python sees them"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
from tritonclient import http

from runners.errors import ConfigInvalid
from tests.contract import requests
from tests.contract.requests import Infer, Tensor
from tests.python_models import TOLD, Told, served
from tests.raw_http import fetch
from tests.serving import run_to_end

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.raw_http import Headers, Response

PATH: Final = requests.path("m")
RESERVED: Final = [
    "sequence_id",
    "sequence_start",
    "sequence_end",
    "priority",
    "timeout",
    "headers",
    "binary_data_output",
    "triton_",
    "triton_final_response",
]


def ask(pattern: str | None, headers: Headers, parameters: dict[str, Any] | None = None) -> Response:
    tensor = Tensor("A", "FP32", (1, 2), values=[1, 2])
    _, body = requests.body(Infer("m", [tensor], parameters=parameters or {}))
    with served(Told(), text=TOLD, header_pattern=pattern) as model:
        port = model.core.serve_http("127.0.0.1", 0, reuse_port=False)
        return fetch(("127.0.0.1", port), "POST", PATH, headers, body)


def told(response: Response) -> dict[str, Any]:
    """The parameters that the engine was given"""
    assert response.status == 200, response.body
    found: dict[str, Any] = json.loads(response.json()["outputs"][0]["data"][0])
    return found


def test_parameters_of_every_type_reach_the_engine_and_those_with_a_meaning_do_not() -> None:
    given = {"text": "ä \0 \\", "whole": -5, "yes": True, "no": False, "half": 0.5, "large": 2**63, "headers": "mine"}
    reserved = {
        "priority": 1,
        "timeout": 5,
        "sequence_id": "s",
        "sequence_start": True,
        "sequence_end": True,
        "binary_data_output": False,
    }
    found = told(ask(None, [], {**given, **reserved}))
    assert found == {**given, "large": float(2**63)}
    assert [type(value) for value in found.values()] == [str, int, bool, bool, float, float, str]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("X-My-.*", {"x-my-first", "x-my-second"}),
        ("x-my-first", {"x-my-first"}),
        ("my", {"x-my-first", "x-my-second", "not-my"}),
        ("^my", set()),
        ("^X-|^NOT", {"x-my-first", "x-my-second", "x-other", "not-my"}),
        ("(?-i)X-My-.*", set()),
        ("(?-i)x-my-.*", {"x-my-first", "x-my-second"}),
        (None, set()),
    ],
)
def test_headers_reach_the_engine_whose_names_match_somewhere(pattern: str | None, expected: set[str]) -> None:
    headers = {"X-My-First": "1", "x-my-second": 'a "b" \\ ', "X-OTHER": "", "Not-My": "ü"}
    values = {"x-my-first": "1", "x-my-second": 'a "b" \\', "x-other": ""}
    found = told(ask(pattern, list(headers.items())))
    assert set(found) == expected
    assert {name: values[name] for name in found if name != "not-my"} == {
        name: value for name, value in found.items() if name != "not-my"
    }


def test_headers_come_beside_the_parameters_of_the_request() -> None:
    assert told(ask("x-.*", [("x-trace", "7")], {"mood": "good"})) == {"mood": "good", "x-trace": "7"}


def test_every_request_of_a_batch_has_its_own_parameters() -> None:
    with served(Told(), text=TOLD, header_pattern="x-.*") as model:
        address = f"127.0.0.1:{model.core.serve_http('127.0.0.1', 0, reuse_port=False)}"
        with http.InferenceServerClient(address, concurrency=16) as client:
            waiting = []
            for number in range(64):
                rows = http.InferInput("A", [number % 3 + 1, 2], "FP32")
                rows.set_data_from_numpy(np.zeros((number % 3 + 1, 2), dtype=np.float32))
                headers = {"X-Number": str(number)}
                waiting.append(client.async_infer("m", [rows], headers=headers, parameters={"number": number}))
            for number, request in enumerate(waiting):
                found = [json.loads(row) for row in request.get_result().as_numpy("PARAMETERS")[:, 0]]
                assert found == [{"number": number, "x-number": str(number)}] * (number % 3 + 1)


@pytest.mark.parametrize("name", RESERVED)
def test_a_matching_header_with_a_reserved_name_is_refused(name: str) -> None:
    for written in (name, name.upper()):
        response = ask("^[a-z]+_|^priority|^timeout|^headers", [(written, "5")])
        text = f"Header '{name}' is reserved for Triton usage and cannot be forwarded."
        assert (response.status, response.error) == (400, text)


@pytest.mark.parametrize("name", RESERVED)
def test_a_reserved_name_that_does_not_match_is_a_header_like_any_other(name: str) -> None:
    assert told(ask("x-.*", [(name, "5"), ("x-a", "b")])) == {"x-a": "b"}


@pytest.mark.parametrize("pattern", ["(", "[a-", "a{1000000}", "*"])
def test_a_pattern_that_is_none_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"^header forward pattern '.*' is no regular expression: [a-zA-Z]"):
        ask(pattern, [])


def test_a_server_takes_the_pattern_as_a_flag(standard_repository: Path, start_server: StartServer) -> None:
    ended = run_to_end(f"--model-repository={standard_repository}", "--http-port=0", "--http-header-forward-pattern=(")
    assert ended.returncode != 0
    assert "header forward pattern '(' is no regular expression: unclosed group" in ended.stdout
    server = start_server(standard_repository, "--http-header-forward-pattern", "TIME.*")
    _, body = requests.body(Infer("identity_int32", [Tensor("INPUT0", "INT32", (1, 1), values=[1])]))
    path = requests.path("identity_int32")
    assert server.post(path, body, [("x-time", "now"), ("user-agent", "me")]).status == 200
    assert server.post(path, body, [("Timeout", "5")]).error.startswith("Header 'timeout' is reserved")
    plain = "/v2/models/identity_int32/generate"
    assert server.post(plain, b'{"INPUT0": 1}', [("Timeout", "5")]).status == 200, "no header reaches it"
