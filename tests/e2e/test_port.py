"""The port of a service as hostile and old clients use it: what ends, what is refused, what is served all the same."""

from __future__ import annotations

import pickle
import re
import sys
from collections import Counter
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import pytest

from tests.e2e.bento import ANSWER_S, START_S, Bento
from tests.e2e.pictures import encoded, picture
from tests.raw_http import Address, Connection, chunked, frame
from tests.unit.bento.test_websocket import last_words, message, upgrade
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PICKLE = "application/vnd.bentoml+pickle"
UPGRADE = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAMAAABkAAQ")]
IMAGE = [("content-type", "image/png")]
SEVEN = encoded(picture(7))
FORM = [("content-type", "multipart/form-data; boundary=x")]
LIMIT = 1024
_SMALL = """
import bentoml
from runners.bento import depends, service


@service(workers=1)
class Small:
    models = depends(url="http://127.0.0.1:1")

    @bentoml.api
    async def double(self, number: int) -> int:
        return 2 * number
"""


@pytest.fixture(scope="module")
def bento() -> Iterator[Bento]:
    with Bento(KUSHI_HTTP_BODY_TIMEOUT_SECS="1", KUSHI_HTTP_HEAD_TIMEOUT_SECS="1").until_ready() as bento:
        yield bento


@pytest.mark.parametrize("body", ["length", "chunks"])
def test_an_offer_of_http_2_is_as_if_it_were_not_there(bento: Bento, body: str) -> None:
    with bento.connect() as connection:
        for _ in range(2):
            if body == "length":
                answer = connection.ask("POST", "/digit", [*UPGRADE, *FORM], in_a_form(SEVEN, "image/png"))
            else:
                headers = [*UPGRADE, *FORM, ("transfer-encoding", "chunked")]
                answer = connection.ask("POST", "/digit", headers, chunked([in_a_form(SEVEN, "image/png")]))
            assert (answer.status, answer.json()["digit"]) == (200, 7)
        answer = connection.ask("GET", "/v2", UPGRADE)
        assert (answer.status, answer.json()["name"]) == (200, "triton")


@pytest.mark.parametrize("path", ["/digit", "/v2/models/digits/infer", "/nowhere"])
def test_a_body_that_stops_is_ended(bento: Bento, path: str) -> None:
    with bento.connect() as connection:
        connection.send(frame("POST", path, [*IMAGE, ("content-length", "1000")], b"half"))
        answer = connection.receive()
        assert answer.status in {404, 408}
        assert connection.is_closed()


def test_a_head_that_stops_is_ended(bento: Bento) -> None:
    with bento.connect() as connection:
        connection.send(b"POST /digit HTTP/1.1\r\nHost")
        assert connection.receive().status == 408
        assert connection.is_closed()


def test_a_client_that_leaves_in_the_middle_of_a_body_leaves_no_trace_in_the_log(bento: Bento) -> None:
    for number in range(5):
        with bento.connect() as connection:
            headers = [*IMAGE, ("content-length", "100000"), ("x-request-id", f"left-{number}")]
            connection.send(frame("POST", "/digit", headers, b"half"))
        assert bento.logged(f"left-{number}")["status"] == 499
    assert "Traceback" not in bento.log.text()


def test_heads_that_are_no_http_do_not_fill_the_log(bento: Bento) -> None:
    said = re.compile(r"^.*(?:is no HTTP|Invalid HTTP).*$", re.MULTILINE)

    def is_said() -> bool:
        with bento.connect() as connection:
            connection.send(b"nonsense\r\n\r\n")
            answer = connection.receive()
            assert (answer.status, answer.error) == (400, "the request is no HTTP/1.1")
        return said.search(bento.log.text()) is not None

    # a worker says one line in ten seconds, whatever clients do, and it may have been of another one
    eventually(is_said, "the log says so")
    for _ in range(100):
        is_said()
    lines = said.findall(bento.log.text())
    by_worker = Counter(re.findall(r"\[(?:entry_service)?:[^\]]*\]", "\n".join(lines)))
    # a worker may say it again after some seconds
    assert len(lines) == by_worker.total() > 0
    assert max(by_worker.values()) < 5


@pytest.mark.parametrize("path", ["/", "/docs", "/metrics", "/docs.json", "/schema.json", "/livez", "/readyz"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_no_page_waits_for_a_body(bento: Bento, path: str, method: str) -> None:
    addresses: list[Address] = [bento.address, *bento.worker_sockets]
    for address in addresses:
        with Connection(address, ANSWER_S) as connection:
            connection.send(frame(method, path, [("content-length", "999999999999")]))
            assert connection.receive(method).status in {200, 404, 405, 413}
            assert connection.is_closed()


def hostile(bento: Bento) -> tuple[bytes, Path]:
    path = bento.runtime / "unpickled"

    class Hostile:
        def __reduce__(self) -> tuple[object, ...]:
            return path.touch, ()

    return pickle.dumps(Hostile()), path


def in_a_form(body: bytes, kind: str) -> bytes:
    head = f'--x\r\ncontent-disposition: form-data; name="image"; filename="a"\r\ncontent-type: {kind}\r\n\r\n'
    return head.encode("latin-1") + body + b"\r\n--x--\r\n"


@pytest.mark.parametrize("space", ["\xa0", " ", "\x85", "\t", ""])
@pytest.mark.parametrize(
    "more",
    [
        [],
        [("buffer-lengths", "0")],
        [("payload-container", "DefaultContainer"), ("payload-meta", "{}"), ("args-number", "1")],
    ],
    ids=["alone", "buffers", "containers"],
)
def test_no_pickle_is_read_however_it_is_called(bento: Bento, space: str, more: list[tuple[str, str]]) -> None:
    body, left = hostile(bento)
    addresses: list[Address] = [bento.address, *bento.worker_sockets]
    for address in addresses:
        for path in ("/digit", "/digits", "/start_engine"):
            for kind in (f"{space}{PICKLE}", f"{PICKLE}{space}", f"{space}{PICKLE}{space};a=b"):
                with Connection(address, ANSWER_S) as connection:
                    answer = connection.ask("POST", path, [("content-type", kind), *more], body)
                assert answer.status == 415
            with Connection(address, ANSWER_S) as connection:
                answer = connection.ask("POST", path, [*FORM, *more], in_a_form(body, f"{space}{PICKLE}"))
                assert answer.status in {400, 404}
    assert not left.exists()


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        (b'"more"', b"[" * 100_000, "a field of the form is JSON that is nested too deeply, or has too long a number"),
        (b'"more"', b"1" * 5000, "a field of the form is JSON that is nested too deeply, or has too long a number"),
        (
            b'"more"; filename="seven.png"',
            SEVEN,
            "a field of the form holds bytes that are no text, and the endpoint declares no file of that name",
        ),
    ],
    ids=["nested", "long", "a_file_of_another_name"],
)
def test_a_field_of_a_form_that_cannot_be_read_is_the_clients_fault(
    bento: Bento, name: bytes, value: bytes, error: str
) -> None:
    part = b"--x\r\ncontent-disposition: form-data; name=" + name + b"\r\n\r\n" + value + b"\r\n"
    answer = bento.fetch("POST", "/digit", FORM, part + in_a_form(SEVEN, "image/png"))
    assert (answer.status, answer.error) == (400, error)
    answer = bento.fetch("POST", "/digit", [("content-type", "application/x-www-form-urlencoded")], b"more=" + value)
    assert answer.status == 400
    assert "Traceback" not in bento.log.text()


@pytest.mark.alone
def test_a_deaf_websocket_holds_little_and_is_given_up(bento: Bento) -> None:
    workers = bento.workers("Kushi")
    before = bento.memory_kib(workers)
    silence = message(bytes(15 << 20)) + message(bytes(1 << 20)) * 16
    with ExitStack() as stack:
        for _ in range(20):
            connection = stack.enter_context(bento.connect(2.0))
            connection.send(upgrade(path="/events"))
            assert connection.receive("HEAD").status == 101
            with suppress(OSError):
                connection.send(silence)
        # what a message each is as sound, and what the system keeps of memory that was used
        assert bento.memory_kib(workers) - before < 400 << 10


def test_a_websocket_message_that_is_too_large_is_refused(bento: Bento) -> None:
    with bento.connect() as connection:
        connection.send(upgrade(path="/events"))
        assert connection.receive("HEAD").status == 101
        connection.send(message(bytes((1 << 20) + 1)))
        assert last_words(connection) == (1009, "a message is larger than the 1048576 bytes that are accepted")


@pytest.mark.parametrize(("path", "body", "status"), [("/absent", b"", 403), ("/v2", b"", 403), ("/events", b"a", 400)])
def test_a_websocket_where_there_is_none_is_refused(bento: Bento, path: str, body: bytes, status: int) -> None:
    with bento.connect() as connection:
        connection.send(upgrade(path=path, body=body))
        assert connection.receive().status == status
        assert connection.is_closed()
    assert bento.is_ready()


@pytest.mark.parametrize("hard", [LIMIT, 4 * LIMIT])
def test_a_crowd_of_silent_clients_keeps_nobody_out(tmp_path: Path, hard: int) -> None:
    """Under the soft limit of descriptors that systems have"""
    (tmp_path / "service.py").write_text(_SMALL)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nulimit -Sn {LIMIT}\nulimit -Hn {hard}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with Bento(tmp_path, python=python) as bento, ExitStack() as stack:
        eventually(lambda: bento.answers("/livez") == 200, "it serves", START_S)
        crowd = [stack.enter_context(bento.connect()) for _ in range(1500)]
        for connection in crowd[::10]:
            with suppress(OSError):
                connection.send(b"GET /livez HTT")
        for _ in range(10):
            assert bento.answers("/livez") == 200
            answer = bento.fetch("POST", "/double", body=b'{"number": 2}')
            assert (answer.status, answer.body) == (200, b"4")
