"""Shared memory of clients: routes, status, and the table of what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from runners.errors import KINDS
from tests.contract.cases import Case, Http
from tests.contract.region_cases import CONTENT, KEY, REGION_CASES
from tests.shared_memory import Object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.raw_http import Connection, Response
    from tests.serving import Server

SYSTEM, CUDA = "/v2/systemsharedmemory", "/v2/cudasharedmemory"
ROW = {"name": "region", "key": KEY, "offset": 0, "byte_size": len(CONTENT)}


@pytest.fixture(scope="module")
def memory_object() -> Iterator[Object]:
    with Object(CONTENT, KEY) as made:
        yield made


@pytest.fixture(scope="module")
def registered_server(region_server: Server, memory_object: Object) -> Iterator[Server]:
    """With the region that the table names."""
    assert memory_object.key == KEY
    assert register(region_server, "region").status == 200
    yield region_server
    assert region_server.post(f"{SYSTEM}/unregister", b"").status == 200


@pytest.fixture
def region_connection(registered_server: Server) -> Iterator[Connection]:
    with registered_server.connect() as connection:
        yield connection
    assert registered_server.process.poll() is None


def register(server: Server, name: str, offset: int = 0, byte_size: int = len(CONTENT)) -> Response:
    body = json.dumps({"key": KEY, "offset": offset, "byte_size": byte_size}).encode()
    return server.post(f"{SYSTEM}/region/{name}/register", body)


def status(connection: Connection, region: str = "", memory: str = SYSTEM) -> Any:  # noqa: ANN401 - a JSON document
    response = connection.ask("GET", f"{memory}{region}/status")
    assert (response.status, response.header("content-type")) == (200, "application/json")
    return response.json()


@pytest.mark.parametrize("case", REGION_CASES, ids=lambda case: case.name)
def test_answers_with_the_status_and_the_text(region_connection: Connection, case: Case) -> None:
    assert isinstance(case.request, Http)
    response = region_connection.ask("POST", case.request.path, case.request.headers, case.request.body)
    assert (response.status, response.error) == (case.code.http, case.text)
    assert response.header("kushi-error") in KINDS
    assert region_connection.ask("GET", "/v2/health/live").status == 200


def test_every_case_has_a_name_of_its_own() -> None:
    names = [case.name for case in REGION_CASES]
    assert len(names) == len(set(names))


def test_what_is_refused_changes_nothing(region_connection: Connection, memory_object: Object) -> None:
    for case in REGION_CASES:
        assert isinstance(case.request, Http)
        region_connection.ask("POST", case.request.path, case.request.headers, case.request.body)
    assert status(region_connection) == [ROW]
    assert memory_object.read() == CONTENT


def test_status_tells_of_one_region_or_of_all_sorted_by_name(
    registered_server: Server, region_connection: Connection
) -> None:
    for name, offset in (("zeta", 7), ("alpha", 1)):
        assert register(registered_server, name, offset, 64).body == b""
    rows = [{"name": name, "key": KEY, "offset": at, "byte_size": 64} for name, at in (("alpha", 1), ("zeta", 7))]
    response = region_connection.ask("GET", f"{SYSTEM}/status")
    assert response.json() == [rows[0], ROW, rows[1]]
    assert list(response.json()[0]) == ["name", "key", "offset", "byte_size"]
    assert status(region_connection, "/region/zeta") == [rows[1]]
    for name in ("zeta", "alpha", "alpha"):
        assert region_connection.ask("POST", f"{SYSTEM}/region/{name}/unregister").status == 200
    assert status(region_connection) == [ROW]


def test_there_is_no_cuda_memory(region_connection: Connection) -> None:
    assert status(region_connection, memory=CUDA) == []
    for name, text in (
        ("other", "Unable to find cuda shared memory region: 'other'"),
        ("region", "The region named 'region' is registered as system shared memory, not CUDA shared memory"),
    ):
        response = region_connection.ask("GET", f"{CUDA}/region/{name}/status")
        assert (response.status, response.error) == (404, text)
    for path in (f"{CUDA}/unregister", f"{CUDA}/region/region/unregister"):
        response = region_connection.ask("POST", path)
        assert (response.status, response.body) == (200, b"")
    assert status(region_connection) == [ROW]


@pytest.mark.parametrize("name", ["a b", "a/b", "..", ".", "ü", "%", "status", "region", '"', "a" * 4000])
def test_a_name_may_be_anything_that_a_path_can_carry(
    registered_server: Server, region_connection: Connection, name: str
) -> None:
    quoted = "".join(f"%{byte:02X}" for byte in name.encode())
    if name != "region":
        assert register(registered_server, quoted).status == 200
    (row,) = status(region_connection, f"/region/{quoted}")
    assert row["name"] == name
    if name != "region":
        assert region_connection.ask("POST", f"{SYSTEM}/region/{quoted}/unregister").status == 200
    assert status(region_connection) == [ROW]


def test_slashes_before_a_key_do_not_count(registered_server: Server, region_connection: Connection) -> None:
    for name, key in (("none", KEY[1:]), ("many", f"///{KEY[1:]}")):
        body = json.dumps({"key": key, "byte_size": 64}).encode()
        assert registered_server.post(f"{SYSTEM}/region/{name}/register", body).status == 200
        assert status(region_connection, f"/region/{name}") == [
            {"name": name, "key": key, "offset": 0, "byte_size": 64}
        ]
        assert region_connection.ask("POST", f"{SYSTEM}/region/{name}/unregister").status == 200


@pytest.mark.parametrize("memory", [SYSTEM, CUDA])
@pytest.mark.parametrize("region", ["", "/region/r"])
@pytest.mark.parametrize(("action", "allowed"), [("status", "GET"), ("register", "POST"), ("unregister", "POST")])
def test_another_verb_is_refused(connection: Connection, memory: str, region: str, action: str, allowed: str) -> None:
    for method in {"GET", "POST", "PUT", "DELETE"} - {allowed}:
        response = connection.ask(method, f"{memory}{region}/{action}")
        assert (response.status, response.error) == (405, "Method Not Allowed")
        assert response.header("allow") == allowed


@pytest.mark.parametrize(
    "path",
    ["", "/", "/state", "/status/", "/region", "/region/status", "/region//status", "/region/a/b/status", "/r/status"],
)
def test_an_unknown_path_is_not_found(connection: Connection, path: str) -> None:
    for memory in (SYSTEM, CUDA):
        assert connection.ask("GET", memory + path).status == 404


def test_status_is_told_where_clients_may_not_use_shared_memory(connection: Connection) -> None:
    for memory, word in ((SYSTEM, "system"), (CUDA, "cuda")):
        assert status(connection, memory=memory) == []
        response = connection.ask("GET", f"{memory}/region/r/status")
        assert (response.status, response.error) == (404, f"Unable to find {word} shared memory region: 'r'")


def test_the_extension_is_told_of_where_it_is_on(connection: Connection, region_connection: Connection) -> None:
    assert "system_shared_memory" not in connection.ask("GET", "/v2").json()["extensions"]
    assert "system_shared_memory" in region_connection.ask("GET", "/v2").json()["extensions"]
