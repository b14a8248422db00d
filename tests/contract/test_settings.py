"""The settings of the log and of traces: what they are, and what a change of them does."""

from __future__ import annotations

import asyncio
import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from tritonclient import http
from tritonclient.http import aio

from runners import Client
from tests import models
from tests.raw_http import fetch
from tests.serving import Server, free_port
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer

LOG = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}
TRACES = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "",
    "trace_mode": "triton",
}


@pytest.fixture
def own_server(start_server: StartServer, repository: Path) -> Server:
    """With the models add_sub and gather, which clients load."""
    models.write_add_sub(repository)
    models.write_gather(repository)
    return start_server(repository, "--model-control-mode=explicit", "--load-model=add_sub", "--load-model=gather")


def change(server: Server, path: str, settings: object) -> Any:  # noqa: ANN401 - a JSON document
    response = server.post(path, json.dumps(settings).encode())
    assert (response.status, response.header("content-type")) == (200, "application/json"), response.body
    return response.json()


def load(server: Server) -> None:
    assert server.post("/v2/repository/models/add_sub/load", b"").status == 200


def count(server: Server, pattern: str) -> int:
    return sum(re.search(pattern, line) is not None for line in server.log.lines)


def test_both_transports_answer_the_settings_in_tritons_order(server: Server) -> None:
    for address in (server.http, server.http_socket):
        for path, expected in (("/v2/logging", LOG), ("/v2/trace/setting", TRACES)):
            response = fetch(address, "GET", path)
            assert (response.status, response.header("content-type")) == (200, "application/json")
            assert response.body == json.dumps(expected, separators=(",", ":")).encode()


def test_the_flags_of_the_log_are_its_first_settings(start_server: StartServer, repository: Path) -> None:
    models.write_add_sub(repository)
    flags = ("--log-verbose=2", "--log-warning=false", "--log-format=ISO8601")
    settings = start_server(repository, *flags).get("/v2/logging").json()
    assert settings == LOG | {"log_verbose_level": 2, "log_warning": False, "log_format": "ISO8601"}


def test_a_refused_change_changes_nothing(own_server: Server) -> None:
    for body in (b'{"log_info": false, "log_format": "xml"}', b'{"log_info": false, "log_verbose_level": -1}'):
        assert own_server.post("/v2/logging", body).status != 200
    assert own_server.post("/v2/trace/setting", b'{"trace_rate": "5", "trace_count": "x"}').status == 400
    assert own_server.get("/v2/logging").json() == LOG
    assert own_server.get("/v2/trace/setting").json() == TRACES


def test_what_is_null_or_unknown_changes_nothing(own_server: Server) -> None:
    assert change(own_server, "/v2/logging", dict.fromkeys(LOG) | {"mood": 1}) == LOG
    assert change(own_server, "/v2/logging", []) == LOG
    assert change(own_server, "/v2/trace/setting", {"trace_level": ["LOUD"], "mood": 1}) == TRACES


def test_of_changes_at_the_same_time_none_is_lost(own_server: Server) -> None:
    def keep_changing(values: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """What was not as this client, who alone changes it, had set it."""
        lost = []
        with own_server.connect() as connection:
            for value in values * 300:
                changed = connection.ask("POST", "/v2/logging", body=json.dumps(value).encode()).json()
                kept = connection.ask("GET", "/v2/logging").json()
                lost += [found for found in (changed, kept) if not value.items() <= found.items()]
        return lost

    clients = [
        [{"log_info": False}, {"log_info": True}],
        [{"log_warning": False}, {"log_warning": True}],
        [{"log_format": "ISO8601"}, {"log_format": "default"}],
        [{"log_error": False}, {"log_error": True}],
    ]
    with ThreadPoolExecutor(len(clients)) as pool:
        assert list(pool.map(keep_changing, clients)) == [[]] * len(clients)
    assert own_server.get("/v2/logging").json() == LOG


def test_lines_of_python_stop_and_come_back(own_server: Server) -> None:
    loading, done = "loading: add_sub:1", re.compile(r"successfully loaded 'add_sub' version 1")
    before = count(own_server, loading)
    assert change(own_server, "/v2/logging", {"log_info": False}) == LOG | {"log_info": False}
    load(own_server)
    change(own_server, "/v2/logging", {"log_info": True, "log_format": "ISO8601"})
    load(own_server)
    own_server.log.wait_for(re.compile(r"^\d{4}-\d\d-\d\dT.*" + done.pattern), 30)
    assert count(own_server, loading) == before + 1


def test_lines_of_the_core_come_when_they_are_asked_for(own_server: Server) -> None:
    def break_protocol() -> None:
        with own_server.connect() as connection:
            connection.send(b"\0\0\0\0\r\n\r\n")
            connection.receive()

    break_protocol()
    # it says nothing of that connection; what it would have said comes before the connection counts no more
    open_connections = 'kushi_open_connections{door="http"}'
    eventually(lambda: own_server.metrics()[open_connections] == 0, "the connection has ended")
    assert change(own_server, "/v2/logging", {"log_verbose_level": 1})["log_verbose_level"] == 1
    break_protocol()
    own_server.log.wait_for(re.compile(r"^I\d{4} .* connection\.rs:\d+\] a connection ended"), 30)
    load(own_server)
    own_server.log.wait_for(re.compile(r"'add_sub' version 1 runs on \d+ thread"), 30)
    assert count(own_server, "a connection ended") == 1


def test_levels_wrap_as_tritons_do(own_server: Server) -> None:
    for level, taken in ((255, 255), (2**31, 0), (2**32 + 3, 3)):
        assert change(own_server, "/v2/logging", {"log_verbose_level": level})["log_verbose_level"] == taken
    change(own_server, "/v2/logging", {"log_verbose_level": 0})


def test_a_log_file_is_told(repository: Path, tmp_path: Path) -> None:
    models.write_add_sub(repository)
    # the log, which would tell the port, goes to the file
    address, file = ("127.0.0.1", free_port()), str(tmp_path / "log")
    doors = ("--http-address=127.0.0.1", f"--http-port={address[1]}", "--allow-metrics=false")
    server = Server([f"--model-repository={repository}", *doors, f"--log-file={file}"])

    def answers() -> bool:
        try:
            return bool(fetch(address, "GET", "/v2/logging").json() == LOG | {"log_file": file})
        except ConnectionError:
            return False

    try:
        eventually(answers, "the settings of the log")
    finally:
        server.kill()


def test_traces_of_a_model_are_those_of_all_until_they_are_its_own(own_server: Server) -> None:
    all_models, add_sub, gather = (
        "/v2/trace/setting",
        "/v2/models/add_sub/trace/setting",
        "/v2/models/gather/trace/setting",
    )
    changed = TRACES | {"trace_rate": "5", "log_frequency": "7"}
    assert change(own_server, all_models, {"trace_rate": " 5x", "log_frequency": "7"}) == changed
    own = changed | {"trace_rate": "9", "trace_count": "3"}
    assert change(own_server, add_sub, {"trace_rate": "9", "trace_count": "3", "trace_level": ["OFF"]}) == own
    assert own_server.get(add_sub).json() == own
    assert own_server.get(gather).json() == own_server.get(all_models).json() == changed
    changed["log_frequency"] = own["log_frequency"] = "8"
    change(own_server, all_models, {"log_frequency": "8"})
    assert own_server.get(add_sub).json() == own
    assert change(own_server, add_sub, {"trace_rate": None, "trace_level": None}) == own | {"trace_rate": "5"}
    assert change(own_server, add_sub, {"trace_count": None}) == changed
    assert change(own_server, all_models, {"trace_rate": None, "log_frequency": None}) == TRACES
    assert own_server.get(add_sub).json() == TRACES


def test_a_rate_wraps_as_tritons_does(own_server: Server) -> None:
    assert change(own_server, "/v2/trace/setting", {"trace_rate": "-1"})["trace_rate"] == str(2**32 - 1)


def test_a_version_has_no_trace_settings_of_its_own(server: Server) -> None:
    assert server.get("/v2/models/add_sub/versions/1/trace/setting").status == 404


def test_tritonclient_reads_and_changes_settings(own_server: Server) -> None:
    with http.InferenceServerClient(f"{own_server.http[0]}:{own_server.http[1]}") as client:
        assert client.get_log_settings() == LOG
        assert client.update_log_settings({"log_verbose_level": 1}) == LOG | {"log_verbose_level": 1}
        assert client.update_log_settings({"log_verbose_level": 0}) == LOG
        assert client.get_trace_settings() == client.get_trace_settings("add_sub") == TRACES
        assert client.update_trace_settings("add_sub", {"trace_rate": "2"}) == TRACES | {"trace_rate": "2"}
        assert client.update_trace_settings(settings={"trace_level": ["OFF"]}) == TRACES


def test_tritonclient_aio_reads_and_changes_settings(own_server: Server) -> None:
    async def talk() -> None:
        async with aio.InferenceServerClient(f"{own_server.http[0]}:{own_server.http[1]}") as client:
            assert await client.update_log_settings({"log_error": False}) == LOG | {"log_error": False}
            assert await client.update_log_settings({"log_error": True}) == await client.get_log_settings() == LOG
            own = TRACES | {"trace_count": "4"}
            assert await client.update_trace_settings("gather", {"trace_count": "4"}) == own
            assert await client.get_trace_settings("gather") == own
            assert await client.get_trace_settings() == TRACES

    asyncio.run(talk())


def test_a_client_of_python_changes_them_too(own_server: Server) -> None:
    with Client(f"http://{own_server.http[0]}:{own_server.http[1]}") as client:
        assert client.update_log_settings({"log_info": False}) == client.get_log_settings() == LOG | {"log_info": False}
        assert client.update_trace_settings(settings={"trace_rate": "3"}) == TRACES | {"trace_rate": "3"}
        assert client.update_trace_settings("add_sub", {"trace_count": "2"}) == client.get_trace_settings("add_sub")
        assert asyncio.run(asked(client)) == (LOG, TRACES)


async def asked(client: Client) -> tuple[dict[str, Any], dict[str, Any]]:
    await client.async_update_trace_settings("add_sub", {"trace_count": None})
    traces = await client.async_update_trace_settings("", {"trace_rate": None})
    return await client.async_update_log_settings({"log_info": True}), traces
