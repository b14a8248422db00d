"""A valid request cut, or with one byte changed, at every offset.

The answer is an error body, or the right answer where the bytes are still a valid request, or a closed connection
where they are no HTTP; and the server serves on. RapidJSON itself says what a broken JSON document is answered with.
"""

from __future__ import annotations

import json
import struct
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import rapidjson

from tests.contract import requests
from tests.contract.requests import HEADER_LENGTH, Infer, Output, Tensor
from tests.raw_http import Connection, Response, frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.serving import Server

PATH = requests.path("add_sub")
FIRST = list(range(16))
SECOND = list(range(100, 116))

JSON_HEADERS, JSON_BODY = requests.body(
    Infer(
        "add_sub",
        [Tensor("INPUT0", "INT32", (1, 16), values=FIRST), Tensor("INPUT1", "INT32", (1, 16), values=SECOND)],
        [Output("OUTPUT0")],
        id="an id",
        parameters={"level": 1.5, "sure": True},
    )
)
BINARY_HEADERS, BINARY_BODY = requests.body(
    Infer(
        "add_sub",
        [
            Tensor("INPUT0", "INT32", (1, 16), raw=struct.pack("<16i", *FIRST)),
            Tensor("INPUT1", "INT32", (1, 16), raw=struct.pack("<16i", *SECOND)),
        ],
        [Output("OUTPUT0", binary=True)],
    )
)
BINARY_JSON = int(BINARY_HEADERS[0][1])
REPLACEMENTS = b'"{}[]:,\\ 0-\x00\xff'


def json_error(document: bytes) -> str | None:
    """What RapidJSON says about a document of ASCII without NUL; nothing if it is one."""
    try:
        rapidjson.loads(document)
    except rapidjson.JSONDecodeError as error:
        offset, text = str(error).removeprefix("Parse error at offset ").split(": ", 1)
        if document[:1] in b"}],:" and offset == "0":
            # Triton reads iteratively, and there these start no document at all.
            text = "The document is empty."
        return f"failed to parse the request JSON buffer: {text} at {offset}"
    return None


def plain(document: bytes) -> bool:
    return b"\0" not in document and document.isascii()


def wrap(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def flat(value: Any) -> Iterable[int]:  # noqa: ANN401 - numbers and arrays of them, as deep as the sender likes
    if isinstance(value, list):
        for entry in value:
            yield from flat(entry)
    else:
        yield value


def results(first: Sequence[int], second: Sequence[int]) -> dict[str, list[int]]:
    """What ``add_sub`` answers, by output."""
    return {
        "OUTPUT0": [wrap(a + b) for a, b in zip(first, second, strict=True)],
        "OUTPUT1": [wrap(a - b) for a, b in zip(first, second, strict=True)],
    }


def json_results(document: bytes) -> dict[str, list[int]]:
    """Right answers to a JSON request that is still valid; of two members with one name the first counts."""

    def first_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            found.setdefault(key, value)
        return found

    parsed = json.loads(document, object_pairs_hook=first_wins)
    data = {entry["name"]: [wrap(value) for value in flat(entry["data"])] for entry in parsed["inputs"]}
    return results(data["INPUT0"], data["INPUT1"])


def answered(response: Response) -> dict[str, list[int]]:
    """Values of an answer by output, whichever way they came."""
    found: dict[str, list[int]] = {}
    rest = response.binary
    for output in response.infer_json["outputs"]:
        if "data" in output:
            found[output["name"]] = output["data"]
        else:
            size = output["parameters"]["binary_data_size"]
            found[output["name"]] = list(struct.unpack(f"<{size // 4}i", rest[:size]))
            rest = rest[size:]
    assert rest == b""
    return found


def check(document: bytes, response: Response, right: Callable[[], dict[str, list[int]]]) -> bool:
    """Whether the request was served; then each output that came is right. Otherwise the error is."""
    expected = json_error(document) if plain(document) else None
    if expected is not None:
        assert (response.status, response.error) == (500, expected), document
    elif response.status == 200:
        found = answered(response)
        assert found, document
        if plain(document):
            assert found.items() <= right().items(), document
        return True
    else:
        assert response.status in (400, 500), document
        assert response.error
    return False


RIGHT = results(FIRST, SECOND)


def changes(data: bytes, start: int = 0, end: int | None = None) -> Iterable[bytes]:
    """The bytes with one of them changed, at every offset, to each of the replacements and by its lowest bit."""
    for offset in range(start, len(data) if end is None else end):
        for byte in {*REPLACEMENTS, data[offset] ^ 1} - {data[offset]}:
            yield data[:offset] + bytes([byte]) + data[offset + 1 :]


def ask_all(server: Server, bodies: list[bytes], headers: list[tuple[str, str]]) -> list[Response]:
    """Pipelines requests whose framing is right, in groups on a few connections."""

    def group(chosen: list[bytes]) -> list[Response]:
        with server.connect() as connection:
            connection.send(b"".join(frame("POST", PATH, headers, body) for body in chosen))
            return [connection.receive() for _ in chosen]

    size = 50
    groups = [bodies[start : start + size] for start in range(0, len(bodies), size)]
    with ThreadPoolExecutor(4) as pool:
        return [response for part in pool.map(group, groups) for response in part]


def test_the_requests_are_valid_before_anything_is_done_to_them(server: Server) -> None:
    right = {"OUTPUT0": RIGHT["OUTPUT0"]}
    assert json_results(JSON_BODY) == RIGHT
    assert answered(server.post(PATH, JSON_BODY, JSON_HEADERS)) == right
    assert answered(server.post(PATH, BINARY_BODY, BINARY_HEADERS)) == right


def test_json_cut_at_every_offset_is_the_error_that_rapidjson_names(server: Server) -> None:
    bodies = [JSON_BODY[:offset] for offset in range(1, len(JSON_BODY))]
    for body, response in zip(bodies, ask_all(server, bodies, []), strict=True):
        assert (response.status, response.error) == (500, json_error(body)), body


def test_json_with_any_byte_changed_is_an_error_or_served_right(server: Server) -> None:
    bodies = list(changes(JSON_BODY))
    responses = ask_all(server, bodies, [])
    served = [check(body, answer, partial(json_results, body)) for body, answer in zip(bodies, responses, strict=True)]
    assert any(served)


def test_binary_data_cut_at_every_offset_is_missed_by_the_byte(server: Server) -> None:
    bodies = [BINARY_BODY[:offset] for offset in range(BINARY_JSON, len(BINARY_BODY))]
    for body, response in zip(bodies, ask_all(server, bodies, BINARY_HEADERS), strict=True):
        have = len(body) - BINARY_JSON
        name, missing = ("INPUT0", 64 - have) if have < 64 else ("INPUT1", 128 - have)
        text = f"unexpected size for input '{name}', expecting {missing} additional bytes for model 'add_sub'"
        assert (response.status, response.error) == (400, text)


def test_a_binary_request_with_any_byte_of_its_json_changed_is_an_error_or_served_right(server: Server) -> None:
    bodies = list(changes(BINARY_BODY, end=BINARY_JSON))
    responses = ask_all(server, bodies, BINARY_HEADERS)
    served = [check(body[:BINARY_JSON], answer, lambda: RIGHT) for body, answer in zip(bodies, responses, strict=True)]
    assert any(served)


def test_a_binary_request_with_any_byte_of_its_data_changed_is_served_right(server: Server) -> None:
    bodies = list(changes(BINARY_BODY, start=BINARY_JSON))
    for body, response in zip(bodies, ask_all(server, bodies, BINARY_HEADERS), strict=True):
        values = struct.unpack("<32i", body[BINARY_JSON:])
        assert response.status == 200
        assert answered(response) == {"OUTPUT0": results(values[:16], values[16:])["OUTPUT0"]}


def test_every_header_length_but_the_right_one_is_an_error(server: Server) -> None:
    body = BINARY_BODY[:BINARY_JSON] + b"\xff" * 128
    lengths = [*range(-2, 0), *range(1, len(body) + 3)]
    with server.connect() as connection:
        for length in lengths:
            response = connection.ask("POST", PATH, [(HEADER_LENGTH, str(length))], body)
            if length == BINARY_JSON:
                assert response.status == 200
            else:
                assert response.status in (400, 500), length
                assert response.error


def end(connection: Connection) -> Response | None:
    """What the server says to a client that has nothing more to send."""
    try:
        connection.finish_sending()
        if connection.is_closed():
            return None
        return connection.receive()
    except (BrokenPipeError, ConnectionError):
        return None


@pytest.mark.parametrize("body", [JSON_BODY, BINARY_BODY], ids=["JSON", "binary"])
def test_a_client_that_stops_at_any_offset_is_let_go(server: Server, body: bytes) -> None:
    headers = BINARY_HEADERS if body is BINARY_BODY else JSON_HEADERS
    whole = frame("POST", PATH, headers, body)

    def stop_at(offset: int) -> Response | None:
        with server.connect() as connection:
            connection.send(whole[:offset])
            return end(connection)

    with ThreadPoolExecutor(8) as pool:
        for response in pool.map(stop_at, range(len(whole))):
            assert response is None or 400 <= response.status < 600
    assert server.post(PATH, body, headers).status == 200


LAST = frame("GET", "/v2/health/live", [("Connection", "close")])


def first_answer(server: Server, data: bytes) -> Response | None:
    """Answer to the first of the requests sent; enough of them follow that no length leaves the server waiting."""
    with server.connect() as connection:
        try:
            connection.send(data + LAST * 100)
            return connection.receive()
        except (BrokenPipeError, ConnectionError):
            return None


def test_a_head_with_any_byte_changed_is_an_error_or_served_right(server: Server) -> None:
    whole = frame("POST", PATH, BINARY_HEADERS, BINARY_BODY)
    mutants = list(changes(whole, end=len(whole) - len(BINARY_BODY)))
    served = 0
    with ThreadPoolExecutor(8) as pool:
        for mutant, response in zip(mutants, pool.map(partial(first_answer, server), mutants), strict=True):
            if response is None:
                continue
            if response.status == 200:
                assert answered(response).items() <= RIGHT.items(), mutant
                served += 1
            else:
                assert 400 <= response.status < 600, mutant
    assert served > 0
    assert server.post(PATH, BINARY_BODY, BINARY_HEADERS).status == 200
