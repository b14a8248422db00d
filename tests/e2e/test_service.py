"""The service of this repository for its clients: uploads in, digits and sounds out, and what it says of itself."""

from __future__ import annotations

import json
import mimetypes
import re
import shlex
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
from httpx_ws import WebSocketDisconnect, WebSocketSession, connect_ws

from runners.uploads.audio import RATE
from tests.e2e.bento import ANSWER_S, Bento
from tests.e2e.pictures import encoded, page, picture, upload
from tests.small_service.sounds import CHUNK
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.raw_http import Response

PICKLE = "application/vnd.bentoml+pickle"


@pytest.mark.parametrize("digit", range(10))
def test_a_digit_is_read(client: httpx.Client, digit: int) -> None:
    answer = upload(client, "/digit", encoded(picture(digit))).raise_for_status().json()
    assert answer["digit"] == digit
    assert np.argmax(answer["probabilities"]) == digit
    assert sum(answer["probabilities"]) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF"])
def test_every_format_of_image_is_read(client: httpx.Client, kind: str) -> None:
    answer = upload(client, "/digit", encoded(picture(7), kind), f"image/{kind.lower()}")
    assert answer.raise_for_status().json()["digit"] == 7


def test_the_digits_of_a_page_are_read_in_their_order(client: httpx.Client) -> None:
    wanted = [3, 1, 4, 1, 5, 9, 2, 6]
    found = upload(client, "/digits", encoded(page(wanted), "JPEG"), "image/jpeg").raise_for_status().json()
    assert [one["digit"] for one in found] == wanted
    lefts = [one["left"] for one in found]
    assert lefts == sorted(lefts)
    for one in found:
        assert one["left"] < one["right"]
        assert one["top"] < one["bottom"]


def test_an_empty_page_has_no_digits(client: httpx.Client) -> None:
    assert upload(client, "/digits", encoded(page([]))).raise_for_status().json() == []


# --- sounds ---


def tone(chunks: int) -> bytes:
    times = np.arange(chunks * CHUNK) / RATE
    sound = sum(np.sin(2 * np.pi * 220 * harmonic * times) / harmonic for harmonic in range(1, 6))
    return (np.asarray(sound) * 6000).astype("<i2").tobytes()


@contextmanager
def listening(bento: Bento) -> Iterator[WebSocketSession]:
    socket: WebSocketSession
    with bento.client() as client, connect_ws(f"{bento.url}/events", client) as socket:
        yield socket


def listened(bento: Bento, *messages: bytes) -> list[dict[str, float]]:
    chunks = sum(map(len, messages)) // (2 * CHUNK)
    with listening(bento) as socket:
        for message in messages:
            socket.send_bytes(message)
        return [socket.receive_json(timeout=ANSWER_S) for _ in range(chunks)]


def test_a_tone_is_told_from_silence(bento: Bento) -> None:
    silence = bytes(2 * CHUNK * 40)
    heard = listened(bento, silence, tone(40), silence)
    assert [one["seconds"] for one in heard] == pytest.approx([place * CHUNK / RATE for place in range(120)])
    quiet, loud = heard[10:40], heard[50:80]
    assert max(one["probability"] for one in quiet) < 0.5 < min(one["probability"] for one in loud)


def test_it_matters_what_was_heard_before_but_not_how_it_was_cut(bento: Bento) -> None:
    sound = bytes(2 * CHUNK * 20) + tone(20)
    whole = listened(bento, sound)
    cut = listened(bento, *(sound[start : start + 999] for start in range(0, len(sound), 999)))
    assert [one["probability"] for one in cut] == pytest.approx([one["probability"] for one in whole], abs=1e-5)
    # the first chunk of the tone without what came before
    alone = listened(bento, tone(1))[0]["probability"]
    assert alone != pytest.approx(whole[20]["probability"], abs=1e-6)


def test_an_empty_message_ends_listening(bento: Bento) -> None:
    with listening(bento) as socket:
        socket.send_bytes(b"")
        with pytest.raises(WebSocketDisconnect) as ended:
            socket.receive(timeout=ANSWER_S)
    assert ended.value.code == 1000


def test_text_is_no_sound(bento: Bento) -> None:
    with listening(bento) as socket:
        socket.send_text("hello")
        with pytest.raises(WebSocketDisconnect) as ended:
            socket.receive(timeout=ANSWER_S)
    assert (ended.value.code, ended.value.reason) == (1003, "expected binary messages, got text")


# --- the document ---


def test_the_document_lists_the_endpoints_with_their_types(client: httpx.Client) -> None:
    document = client.get("/docs.json").raise_for_status().json()
    (body,) = document["paths"]["/digit"]["post"]["requestBody"]["content"].items()
    assert body[0] == "multipart/form-data"
    assert body[1]["schema"]["properties"]["image"] == {"format": "binary", "title": "Image", "type": "string"}
    answer = document["paths"]["/digit"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert answer["properties"]["digit"]["type"] == "integer"
    assert answer["properties"]["probabilities"]["items"] == {"type": "number"}
    answer = document["paths"]["/digits"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert answer == {"type": "array", "items": {"$ref": "#/components/schemas/Found"}}
    found = document["components"]["schemas"]["Found"]["properties"]
    assert {name: one["type"] for name, one in found.items()} == {
        "digit": "integer",
        "probabilities": "array",
        **dict.fromkeys(("left", "top", "right", "bottom"), "integer"),
    }


# --- what it says of itself ---


@pytest.fixture
def document(client: httpx.Client) -> Any:  # noqa: ANN401 - JSON
    return client.get("/docs.json").raise_for_status().json()


def kinds(one: dict[str, Any]) -> dict[str, type]:
    return {name: type(value) for name, value in one.items()}


def quoted(text: str, beginning: str) -> str:
    (found,) = re.findall(f"`({re.escape(beginning)}[^`]*)`", text)
    return str(found)


@pytest.mark.parametrize(("path", "several"), [("/digit", False), ("/digits", True)])
def test_the_examples_of_an_endpoint_can_be_sent_and_are_answered(
    document: Any,  # noqa: ANN401 - JSON
    client: httpx.Client,
    path: str,
    several: bool,
) -> None:
    operation = document["paths"][path]["post"]
    words = shlex.split(quoted(operation["description"], "curl"))
    field, _, file = words[words.index("-F") + 1].partition("=@")
    schema = operation["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert list(schema["properties"]) == schema["required"] == [field]
    kind = mimetypes.guess_type(file)[0]
    data = encoded(page([7]) if several else picture(7), str(kind).partition("/")[2].upper())
    answer = client.post(words[-1].removeprefix("URL"), files={field: (file, data, kind)}).raise_for_status().json()
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    one = answer[0] if several else answer
    if several:
        schema = document["components"]["schemas"][schema["items"]["$ref"].rpartition("/")[2]]
    example = schema["example"]
    assert kinds(example) == kinds(one)
    assert example["digit"] == one["digit"] == np.argmax(example["probabilities"])
    assert len(example["probabilities"]) == 10
    assert sum(example["probabilities"]) == pytest.approx(1)


def test_the_example_of_what_is_heard_has_the_form_of_an_answer(document: Any, bento: Bento) -> None:  # noqa: ANN401 - JSON
    example = json.loads(quoted(document["info"]["description"], "{"))
    (heard,) = listened(bento, bytes(2 * CHUNK))
    assert {name: type(value) for name, value in example.items()} == {
        name: type(value) for name, value in heard.items()
    }


def test_the_errors_that_clients_see_are_said(document: Any, bento: Bento) -> None:  # noqa: ANN401 - JSON
    refused = bento.fetch("POST", "/digit", [("content-type", PICKLE)])
    wrong = bento.fetch("POST", "/digit", [("content-type", "text/plain")], b"/etc/passwd")
    errors = {str(answer.status): answer.json() for answer in (refused, wrong)}
    assert errors.keys() == {"415", "400"}
    for path in ("/digit", "/digits"):
        said = document["paths"][path]["post"]["responses"]
        assert said.keys() >= {"200", "400", "413", "415", "503"}
        for status, body in errors.items():
            name = said[status]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
            schema = document["components"]["schemas"][name]
            assert set(schema["required"]) <= body.keys() <= schema["properties"].keys()


# --- what every answer has ---


def test_the_id_of_a_request_comes_back(client: httpx.Client) -> None:
    for path in ("/livez", "/digit", "/nowhere"):
        answer = client.post(path, headers={"x-request-id": "my-id:42/a"})
        assert answer.headers.get_list("x-request-id") == ["my-id:42/a"]


def test_a_request_without_an_id_gets_one(client: httpx.Client) -> None:
    first, second = (client.get("/livez").headers["x-request-id"] for _ in range(2))
    assert re.fullmatch(r"[0-9a-f]{32}", first)
    assert first != second


@pytest.mark.parametrize("identity", [b"a" * 129, b"", b"two words", b"\xff\xfe", b"a\tb"])
def test_an_id_that_could_harm_a_log_is_replaced(client: httpx.Client, identity: bytes) -> None:
    answer = client.get("/livez", headers={b"x-request-id": identity})
    assert re.fullmatch(r"[0-9a-f]{32}", answer.headers["x-request-id"])


def test_one_of_several_ids_counts(bento: Bento) -> None:
    headers = [("x-request-id", "not this one"), ("x-request-id", "this-one")]
    answer = bento.fetch("POST", "/digit", headers)
    assert answer.header("x-request-id") == "this-one"
    assert bento.logged("this-one")["path"] == "/digit"


def test_the_access_log_has_a_line_of_json_for_each_request(bento: Bento, client: httpx.Client) -> None:
    body = {"image": ("picture", encoded(picture(2)), "image/png")}
    answer = client.post("/digit?secret=1", files=body, headers={"x-request-id": "logged-1"})
    line = bento.logged("logged-1")
    assert line.pop("ms") > 0
    assert datetime.fromisoformat(line.pop("time")).tzinfo is not None
    assert line == {
        "client": "127.0.0.1",
        "method": "POST",
        "path": "/digit",
        "status": 200,
        "received": int(answer.request.headers["content-length"]),
        "sent": len(answer.content),
        "request_id": "logged-1",
    }
    assert sum("logged-1" in line for line in bento.log.lines) == 1
    # a path cannot begin a line of its own
    client.get("/a%0d%0ab%22", headers={"x-request-id": "logged-2"})
    assert bento.logged("logged-2")["path"] == '/a\r\nb"'
    assert 'b"' not in bento.log.lines


def test_the_metrics_of_the_service_are_answered(client: httpx.Client) -> None:
    upload(client, "/digit", encoded(picture(2))).raise_for_status()
    lines = client.get("/metrics").raise_for_status().text.splitlines()
    (count,) = [
        float(line.split()[-1])
        for line in lines
        if line.startswith("bentoml_service_request_total{") and 'endpoint="/digit",http_response_code="200"' in line
    ]
    assert count >= 1


def test_live_and_ready_are_answered(client: httpx.Client) -> None:
    for path in ("/livez", "/readyz", "/healthz", "/v2/health/live", "/v2/health/ready"):
        assert client.get(path).status_code == 200


@pytest.mark.clock
def test_the_requests_of_all_workers_meet_in_one_engine(bento: Bento) -> None:
    def inferences() -> int:
        answer: Response = bento.fetch("GET", "/v2/models/digits/stats")
        return int(answer.json()["model_stats"][0]["inference_count"])

    before, asked = inferences(), 0
    # as many as there are cores
    there, workers = set(bento.workers("Kushi")), set()
    content = {"image": ("picture", encoded(picture(2)), "image/png")}
    form = httpx.Request("POST", bento.url, files=content)
    headers = [("content-type", form.headers["content-type"])]

    def ask() -> bool:
        nonlocal asked
        asked += 1
        with bento.connect() as connection:
            answer = connection.ask("POST", "/digit", headers, form.read())
            assert (answer.status, answer.json()["digit"]) == (200, 2)
            workers.add(bento.worker_of(connection))
        return workers == there

    eventually(ask, "all workers have answered")
    assert inferences() - before == asked
