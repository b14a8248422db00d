"""Files that are small to send and dear to read: the service refuses them, and answers others meanwhile."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.e2e.bento import Bento
from tests.e2e.pictures import encoded, picture, upload
from tests.unit.uploads.bombs import (
    REFUSED,
    jpeg_of_scans,
    tiff_of_one_tile,
    tiff_of_tags,
    webp_of_trees,
)
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

SIDE = 4000
"""Of the dearest image that is read: 16 megapixels in colours, in scans as many as may be"""
SCANS = 25
MOST_SECONDS = 60.0
MOST_KIB = 256 * 1024
"""Of one process: the program itself, and what decoding may take, or an upload that it passes on"""
WORST = {
    "a tile": lambda: tiff_of_one_tile(46_320),
    "scans": lambda: jpeg_of_scans(5000, 1024, 1024),
    "trees": lambda: webp_of_trees(65_000),
    "tags": lambda: tiff_of_tags(2000),
    "runs": REFUSED["BMP of runs"][0],
    "comments": REFUSED["GIF of comments"][0],
}


def left_by_uploads(bento: Bento) -> list[Path]:
    return list(bento.runtime.glob("bentoml-request-*/*"))


def request(data: bytes) -> tuple[bytes, bytes]:
    """Head and body of an upload"""
    form = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\nContent-Type: image/png\r\n\r\n'
    body = form + data + b"\r\n--x--\r\n"
    head = b"POST /digit HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=x\r\n"
    return head + b"content-length: %d\r\n\r\n" % len(body), body


@pytest.mark.alone
@pytest.mark.parametrize("name", WORST)
def test_a_bomb_is_refused_in_bounded_memory_and_silence(bento: Bento, client: httpx.Client, name: str) -> None:
    logged = len(bento.log.text())
    answer = upload(client, "/digits", WORST[name]())
    assert (answer.status_code, list(answer.json())) == (400, ["error"]), answer.text
    assert bento.peak_kib() < MOST_KIB
    bento.logged(answer.headers["x-request-id"])
    assert len(bento.log.text()) - logged < 1000
    assert upload(client, "/digit", encoded(picture(3))).json()["digit"] == 3
    eventually(lambda: not left_by_uploads(bento), "the uploads are removed")


@pytest.mark.alone
def test_others_are_answered_while_the_dearest_images_are_read(bento: Bento) -> None:
    dear = jpeg_of_scans(SCANS, SIDE, SIDE, layers=3)
    honest = encoded(picture(8))

    def asked(data: bytes) -> tuple[int, str]:
        with httpx.Client(base_url=bento.url, timeout=MOST_SECONDS, trust_env=False) as client:
            while (answer := upload(client, "/digit", data)).status_code == 503:
                # whose turn does not come in time is told to come again
                assert answer.headers["retry-after"]
            return answer.status_code, answer.text

    with ThreadPoolExecutor(16) as clients:
        attackers = [clients.submit(asked, dear) for _ in range(12)]
        answers = [clients.submit(asked, honest).result() for _ in range(4)]
        assert {status for status, _ in answers} == {200}
        # nothing is drawn on them
        assert {attacker.result()[0] for attacker in attackers} == {400}
    assert bento.peak_kib() < MOST_KIB
    # after the last answer
    eventually(lambda: not left_by_uploads(bento), "the uploads are removed")


def test_uploads_of_clients_that_go_away_are_removed(bento: Bento) -> None:
    head, body = request(jpeg_of_scans(SCANS, SIDE, SIDE, layers=3) + bytes(8 << 20))
    for sent in (len(body), len(body) // 2):
        for _ in range(4):
            with bento.connect() as connection, suppress(OSError):
                connection.send(head + body[:sent])
    with bento.client() as client:
        assert upload(client, "/digit", encoded(picture(6))).json()["digit"] == 6
    eventually(lambda: not left_by_uploads(bento), "the uploads are removed", MOST_SECONDS)


def test_what_nobody_waits_for_any_more_does_not_delay_the_end() -> None:
    with Bento().until_ready() as bento:
        head, body = request(jpeg_of_scans(SCANS, SIDE, SIDE, layers=3))
        for _ in range(20):
            with bento.connect() as connection:
                connection.send(head + body)
        # its context looks that it ends, and that no process is left
