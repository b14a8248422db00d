"""Parameters that models give their responses, on every way to an asker"""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runners import Client, Engine, Result
from tests.conftest import StartServer
from tests.integration.python_models import models
from tests.integration.python_models.test_models import client_of, tensor
from tests.raw_http import fetch
from tests.serving import Server

GIVEN: dict[str, Any] = {"flag": True, "count": -(2**63), "text": 'a "é"\n', "empty": ""}


def write(repository: Path) -> None:
    models.write(repository, "telling", models.TELLING, models.COUNTED_CONFIG)
    models.write(repository, "repeating", models.REPEATING, models.COUNTED_CONFIG)


@pytest.fixture
def server(repository: Path, start_server: StartServer) -> Server:
    write(repository)
    return start_server(repository, f"--local-socket={repository.parent}/local")


def word(given: dict[str, Any] | None) -> np.ndarray:
    return np.array([b"" if given is None else json.dumps(given).encode()], np.object_)


@pytest.mark.parametrize("given", [GIVEN, {}, None], ids=["some", "none", "not_said"])
def test_parameters_of_a_response_reach_http(given: dict[str, Any] | None, server: Server) -> None:
    answer = client_of(server).infer("telling", [tensor("WHAT", word(given))]).get_response()
    assert answer.get("parameters", {}) == (given or {})
    assert ("parameters" in answer) == bool(given)


def test_parameters_of_a_response_stand_beside_its_outputs_in_generate(server: Server) -> None:
    body = json.dumps({"WHAT": json.dumps({**GIVEN, "SAID": "not the output", "model_name": "x"})}).encode()
    for verb, start in (("generate", b""), ("generate_stream", b"data: ")):
        answer = fetch(server.http, "POST", f"/v2/models/telling/{verb}", body=body).body
        read = json.loads(answer.removeprefix(start))
        assert read == {**GIVEN, "SAID": "not the output", "model_name": "telling", "model_version": "1"}


def test_parameters_of_a_response_reach_a_model_that_asks(server: Server) -> None:
    answer = client_of(server).infer("repeating", [tensor("WHAT", word(GIVEN))]).get_response()
    assert answer["parameters"] == {**GIVEN, "repeated": True}


def test_parameters_of_a_response_reach_clients(server: Server, repository: Path) -> None:
    for url in (f"unix://{repository.parent}/local", f"http://{server.http[0]}:{server.http[1]}"):
        with Client(url) as client:
            assert client.infer("telling", {"WHAT": word(GIVEN)}).parameters == GIVEN
            assert client.infer("telling", {"WHAT": word(None)}).parameters == {}


def test_parameters_of_a_response_reach_calls_in_this_process(repository: Path) -> None:
    write(repository)
    with Engine(repository) as engine:
        assert engine.infer("telling", {"WHAT": word(GIVEN)}).parameters == GIVEN

        async def ask() -> Result:
            return await engine.async_infer("telling", {"WHAT": word(GIVEN)})

        assert asyncio.run(ask()).parameters == GIVEN


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"a": 0.5}, "Expect parameters values to have type bool/int/str, found type <class 'float'>"),
        ({"a": 2**63}, "Expect parameters values to have 64 bits at most, found 9223372036854775808"),
        ({"a": "\ud800"}, "Expect parameters to be text in UTF-8"),
    ],
)
def test_what_is_no_parameter_fails_its_request(given: dict[str, Any], text: str, server: Server) -> None:
    client = client_of(server)
    with pytest.raises(Exception, match=text.replace("(", "\\(")):
        client.infer("telling", [tensor("WHAT", word(given))])
    assert client.infer("telling", [tensor("WHAT", word({}))]).as_numpy("SAID").tolist() == [b"{}"]
    assert not any("is started again" in line for line in server.log.lines)
