"""What the service of this repository does not take: it says so clearly, and serves on."""

from __future__ import annotations

import json
import pickle
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.e2e.bento import ANSWER_S, Bento
from tests.e2e.pictures import bomb, encoded, page, picture, upload
from tests.raw_http import Connection, chunked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.raw_http import Address

PICKLE = "application/vnd.bentoml+pickle"
MOST_BYTES = 64 * 1024 * 1024


@pytest.mark.parametrize("path", ["/digit", "/digits"])
@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"no image at all", "expected an image (PNG, JPEG, WEBP, GIF, BMP, TIFF), got 15 bytes"),
        (b"", "expected an image (PNG, JPEG, WEBP, GIF, BMP, TIFF), got no bytes"),
        (encoded(picture(4))[:200], "the image is truncated or malformed"),
        (encoded(picture(4), "JPEG")[:300], "the image is truncated or malformed"),
        (bomb(), "megapixels, got"),
        (pickle.dumps(print), "expected an image"),
    ],
    ids=["text", "nothing", "half a png", "half a jpeg", "a bomb", "a pickle"],
)
def test_what_is_no_image_is_told_so(client: httpx.Client, path: str, data: bytes, text: str) -> None:
    answer = upload(client, path, data)
    assert answer.status_code == 400, answer.text
    assert list(answer.json()) == ["error"]
    assert text in answer.json()["error"]


def test_a_picture_with_nothing_on_it_is_told_so(client: httpx.Client) -> None:
    answer = upload(client, "/digit", encoded(page([])))
    assert answer.status_code == 400
    assert "found nothing drawn on the image" in answer.json()["error"]


def test_another_kind_of_file_is_refused(client: httpx.Client) -> None:
    answer = upload(client, "/digit", b"{}", "application/json")
    assert answer.status_code == 400
    assert "expected image/*" in answer.text


@pytest.mark.parametrize(
    "name", ["a" * 300, "../../etc/passwd", "/etc/passwd", "\0", "é" * 200], ids=["long", "up", "root", "nul", "wide"]
)
def test_the_name_of_an_upload_does_not_matter(client: httpx.Client, name: str) -> None:
    answer = client.post("/digit", files={"image": (name, encoded(picture(5)), "image/png")})
    assert (answer.status_code, answer.json()["digit"]) == (200, 5), answer.text


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b'{"image": "/etc/passwd"}'),
        ("application/json", b'{"image": ["/etc/passwd"]}'),
        ("application/json", b'{"image": {"root": "/etc/passwd"}}'),
        ("application/json", b'{"image": null}'),
        ("application/json", b"{"),
        ("application/json", b"[]"),
        ("application/json", b""),
        ("application/json", b"\xff\xfe"),
        ("text/plain", b"/etc/passwd"),
        ("multipart/form-data", b"no boundary"),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data; name=image\r\n\r\n"),
        ("multipart/form-data; boundary=x", b"--x\r\nnonsense\r\n\r\n--x--\r\n"),
        ("Multipart/Form-Data; boundary=x", b"--x--\r\n"),
        ("multipart/form-data; boundary=x", b"--x--\r\n"),
        ("multipart/form-data; boundary=", b"--x--\r\n"),
        ("application/x-www-form-urlencoded", b"image=/etc/passwd"),
        ("application/x-www-form-urlencoded", b"=&=&%%%"),
        ("nonsense", b"image"),
    ],
)
def test_a_body_that_is_no_upload_is_a_fault_of_the_client(client: httpx.Client, kind: str, body: bytes) -> None:
    answer = client.post("/digit", content=body, headers={"content-type": kind})
    assert 400 <= answer.status_code < 500, answer.text
    assert "error" in answer.json()


class _Bait(BaseHTTPRequestHandler):
    fetched = 0

    def do_GET(self) -> None:
        type(self).fetched += 1
        self.send_response(200)
        self.end_headers()

    do_HEAD = do_POST = do_GET  # noqa: N815 - the names that the standard library asks for


@pytest.fixture
def bait() -> Iterator[str]:
    """A link that nobody may follow"""
    _Bait.fetched = 0
    with ThreadingHTTPServer(("127.0.0.1", 0), _Bait) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/picture.png"
        finally:
            server.shutdown()
            thread.join()
    assert _Bait.fetched == 0


def test_a_link_in_a_form_is_not_followed(client: httpx.Client, bait: str) -> None:
    for answer in (
        client.post("/digit", files={"image": (None, bait)}),
        client.post("/digit", files=[("image", (None, bait)), ("image", ("a", encoded(picture(1)), "image/png"))]),
        client.post("/digits", data={"image": bait}),
    ):
        assert answer.status_code == 400
        assert answer.json() == {
            "error": "'image' is text, expected a file: upload the file itself, links are not followed"
        }


def test_a_link_as_the_body_is_not_followed(client: httpx.Client, bait: str) -> None:
    for kind in ("text/plain", "application/json", "image/png", "multipart/form-data; boundary=x"):
        for body in (bait, json.dumps(bait), json.dumps({"image": bait})):
            answer = client.post("/digit", content=body, headers={"content-type": kind})
            assert answer.status_code == 400, answer.text


def hostile_pickle(bento: Bento) -> tuple[bytes, Any]:
    """One that would leave a file"""
    path = bento.runtime / "unpickled"

    class Hostile:
        def __reduce__(self) -> tuple[Any, ...]:
            return path.touch, ()

    return pickle.dumps(Hostile()), path


@pytest.mark.parametrize(
    "headers",
    [
        [("content-type", PICKLE)],
        [("content-type", f"{PICKLE}; charset=x")],
        [("content-type", PICKLE.upper())],
        [("content-type", PICKLE), ("content-type", "application/json")],
        [("content-type", "application/json"), ("content-type", PICKLE)],
    ],
)
def test_pickle_is_refused_at_every_socket(bento: Bento, headers: list[tuple[str, str]]) -> None:
    body, left = hostile_pickle(bento)
    sockets = bento.worker_sockets
    assert sockets
    addresses: list[Address] = [bento.address, *sockets]
    for address in addresses:
        for path in ("/digit", "/start_engine", "/"):
            with Connection(address, ANSWER_S) as connection:
                answer = connection.ask("POST", path, headers, body)
            assert answer.status == 415
            assert answer.error == "pickle is not accepted: send JSON, multipart/form-data or the body itself"
    assert not left.exists()


def test_a_body_that_says_it_is_too_large_is_refused_unread(bento: Bento) -> None:
    with bento.connect() as connection:
        head = f"POST /digit HTTP/1.1\r\nhost: x\r\ncontent-length: {MOST_BYTES + 1}\r\n\r\n"
        connection.send(head.encode())
        answer = connection.receive()
    assert (answer.status, answer.error) == (413, f"the body is larger than the {MOST_BYTES} bytes that are accepted")


def test_a_body_that_turns_out_too_large_is_refused(bento: Bento) -> None:
    piece = bytes(1 << 20)
    with bento.connect() as connection:
        connection.send(
            b"POST /digit HTTP/1.1\r\nhost: x\r\ncontent-type: image/png\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        try:
            for _ in range(MOST_BYTES // len(piece) + 1):
                connection.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        except OSError:
            # it need not read what it has refused
            pass
        answer = connection.receive()
    assert answer.status == 413


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data; boundary=x"])
def test_a_large_body_within_the_limit_is_read(bento: Bento, kind: str) -> None:
    pieces = [bytes(1 << 20)] * 20
    answer = bento.fetch("POST", "/digit", [("content-type", kind), ("transfer-encoding", "chunked")], chunked(pieces))
    assert answer.status == 400


@pytest.mark.parametrize("charset", ["punycode", "undefined", "utf-7", "idna", "no-such"])
def test_a_form_in_unusual_characters_is_refused_before_it_is_read(client: httpx.Client, charset: str) -> None:
    name = "a" * 200_000
    form = f'--B\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n1\r\n--B--\r\n'.encode()
    kind = f"multipart/form-data; boundary=B; charset={charset}"
    answer = client.post("/digit", content=form, headers={"content-type": kind})
    assert answer.status_code == 400, answer.text
    assert answer.json() == {"error": f"a form in the charset '{charset}' is not read: send it in utf-8"}


def test_paths_that_clients_make_up_are_in_the_metrics_under_one_name(client: httpx.Client) -> None:
    for number in range(30):
        assert client.get(f"/made-up-{number}/{'x' * 1000}").status_code == 404
    assert client.get("/livez").status_code == 200
    page = client.get("/metrics").text
    assert "made-up" not in page
    endpoints = {part.partition('"')[0] for part in page.split('endpoint="')[1:]}
    assert {"/digit", "/livez", "other"} <= endpoints


def test_a_path_fills_no_log(bento: Bento, client: httpx.Client) -> None:
    path = "/" + "%01" * 10_000
    assert client.get(path, headers={"x-request-id": "a-long-path"}).status_code == 404
    assert bento.logged("a-long-path")["path"] == "/" + "\x01" * 255
