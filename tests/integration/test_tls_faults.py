"""TLS with clients that do not do as they should"""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

from tests.certificates import Authority
from tests.integration.tls import context, flags
from tests.raw_http import Connection, fetch
from tests.serving import Server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.certificates import Identity

MANY: Final = 1000
REFUSED: Final = {
    "none": "it shows no certificate (--http-use-ssl-mutual)",
    "a stranger's": "its certificate is of no authority that is trusted (--http-root-cert)",
    "a server's": "its certificate is for another purpose (extendedKeyUsage) (--http-root-cert)",
}


@pytest.mark.parametrize("certificate", REFUSED)
def test_a_client_that_is_not_let_in_is_in_the_log(
    standard_repository: Path, identity: Identity, authority: Authority, tmp_path: Path, certificate: str
) -> None:
    clients = Authority(tmp_path, "clients")
    shown = {
        "none": None,
        "a stranger's": Authority(tmp_path, "others").sign("stranger"),
        "a server's": clients.sign("server", "extendedKeyUsage=serverAuth"),
    }[certificate]
    given = (*flags(identity)[1:], "--http-use-ssl-mutual", f"--http-root-cert={clients.certificate}")
    server = Server.start(standard_repository, *given, ready=False)
    try:
        for _ in range(5):
            with pytest.raises(OSError, match=r"(?i)alert|reset|eof"):
                fetch(server.http, "GET", "/v2", tls=context(authority, shown))
        server.log.wait_for(re.compile(re.escape(f"a client at 127.0.0.1 is refused: {REFUSED[certificate]}")), 30)
        assert sum("is refused" in line for line in server.log.lines) < 5, "it is not said of each"
    finally:
        server.stop()


def test_a_head_that_cannot_be_read_has_a_text_here_too(tls_port: int, authority: Authority) -> None:
    for head, status, text in (
        (b"hello\r\n\r\n", 400, "the head of the request is no HTTP/1.1"),
        (
            b"GET /v2 HTTP/1.1" + b"\r\nx: y" * 200 + b"\r\n\r\n",
            431,
            "the head of the request has more than 100 headers",
        ),
    ):
        with Connection(("127.0.0.1", tls_port), tls=context(authority)) as connection:
            assert connection.ask("GET", "/v2").status == 200
            connection.send(head)
            response = connection.receive()
            assert response.status == status
            assert response.error.startswith(text)


def test_plain_http_and_garbage_are_closed_and_harm_nobody(tls_port: int, authority: Authority) -> None:
    for sent in (
        b"GET /v2 HTTP/1.1\r\nhost: h\r\n\r\n",
        bytes(range(256)) * 8,
        b"\x16\x03\x01\xff\xff" + b"\0" * 65535,
    ):
        with Connection(("127.0.0.1", tls_port)) as connection:
            connection.send(sent)
            with pytest.raises(ConnectionError):
                connection.receive()
    assert fetch(("127.0.0.1", tls_port), "GET", "/v2", tls=context(authority)).status == 200


def test_clients_that_never_finish_their_handshake_keep_nobody_out(
    standard_repository: Path, identity: Identity, authority: Authority
) -> None:
    server = Server.start(
        standard_repository, *flags(identity), "--http-thread-count=1", "--http-head-timeout-secs=600", ready=False
    )
    try:
        with ExitStack() as stack:
            silent = [stack.enter_context(socket.create_connection(server.http, timeout=30)) for _ in range(MANY)]
            # some say nothing, the others not enough
            for one in silent[::2]:
                one.sendall(b"\x16\x03\x01\x02\x00")
            for _ in range(3):
                assert fetch(server.http, "GET", "/v2/health/live", tls=context(authority)).status == 200
            # The place of the one that has been silent for the longest was needed.
            assert silent[1].recv(100) == b""
    finally:
        server.stop()


def test_a_client_that_asks_for_new_keys_over_and_over_is_cut_off(tls_port: int, authority: Authority) -> None:
    process = subprocess.Popen(
        ["openssl", "s_client", "-connect", f"127.0.0.1:{tls_port}", "-tls1_2", "-CAfile", str(authority.certificate)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        # R on a line of its own asks for a renegotiation, which is refused.
        _, said = process.communicate(b"R\n" * 50, timeout=60)
    finally:
        process.kill()
        process.wait()
    assert b"renegotiation" in said.lower()
    assert fetch(("127.0.0.1", tls_port), "GET", "/v2", tls=context(authority)).status == 200


def test_a_handshake_that_stops_in_the_middle_is_ended(
    standard_repository: Path, identity: Identity, authority: Authority
) -> None:
    server = Server.start(standard_repository, *flags(identity), "--http-head-timeout-secs=1", ready=False)
    try:
        with (
            socket.create_connection(server.http, timeout=30) as silent,
            socket.create_connection(server.http, timeout=30) as halfway,
        ):
            hello = ssl.MemoryBIO()
            half = context(authority).wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
            with pytest.raises(ssl.SSLWantReadError):
                half.do_handshake()
            halfway.sendall(hello.read())
            # the server's end of the handshake, to which there is no answer
            assert halfway.recv(1) == b"\x16"
            while halfway.recv(1 << 16):
                pass
            assert silent.recv(1) == b""
    finally:
        server.stop()
