"""What a client can do to a worker before TLS is agreed upon: it is a connection as all others."""

from __future__ import annotations

import dataclasses
import socket
import ssl
from contextlib import ExitStack

import pytest

from tests.certificates import Authority
from tests.raw_http import Connection, frame
from tests.unit.bento.served import PATIENT, QUICK, echo, served
from tests.waiting import eventually


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.mark.clock
@pytest.mark.parametrize("begin", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["silent", "half a hello"])
def test_one_that_does_not_go_on_is_ended(authority: Authority, begin: bytes) -> None:
    with served(echo, QUICK, authority=authority) as server, Connection(server.address) as stalled:
        stalled.send(begin)
        assert stalled.is_closed()
        server.until_nobody_is_connected()


def test_one_that_is_under_way_counts_and_gives_way_to_who_comes(authority: Authority) -> None:
    few = dataclasses.replace(PATIENT, max_connections=10)
    with served(echo, few, authority=authority) as server, ExitStack() as stack:
        silent = [stack.enter_context(Connection(server.address)) for _ in range(10)]
        eventually(lambda: server.connections == 10, "all of them count")
        with server.connect() as connection:
            assert connection.ask("GET", "/").status == 200
        assert silent[0].is_closed()
        eventually(lambda: server.connections == 9, "the others stay")


def test_one_does_not_keep_the_worker_from_ending(authority: Authority) -> None:
    with served(echo, PATIENT, authority=authority) as server, Connection(server.address) as silent:
        eventually(lambda: server.connections == 1, "it is there")
        server.server.should_exit = True
        server.until_it_has_ended()
        assert silent.is_closed()


def test_a_request_that_comes_with_its_end_is_served(authority: Authority) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=authority.certificate)
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with served(echo, PATIENT, authority=authority) as server, socket.create_connection(server.address, 30) as plain:
        while True:
            try:
                client.do_handshake()
            except ssl.SSLWantReadError:
                plain.sendall(outgoing.read())
                incoming.write(plain.recv(1 << 16))
            else:
                break
        client.write(frame("GET", "/early"))
        # Both in one piece.
        plain.sendall(outgoing.read())
        answer = b""
        while b"GET|/early|host|" not in answer:
            received = plain.recv(1 << 16)
            assert received, answer
            incoming.write(received)
            try:
                while piece := client.read(1 << 16):
                    answer += piece
            except ssl.SSLWantReadError:
                pass


def test_those_that_fail_are_one_line_of_the_log(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    with served(echo, PATIENT, authority=authority) as server:
        for _ in range(20):
            with Connection(server.address) as plain:
                plain.send(frame("GET", "/"))
                assert plain.is_closed()
        server.until_nobody_is_connected()
    assert [record.getMessage() for record in caplog.records if record.name != "asyncio"] == [
        "a client was refused: the TLS handshake failed, HTTP_REQUEST"
    ]
