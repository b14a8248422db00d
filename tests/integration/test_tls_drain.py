"""The end of a server that speaks TLS"""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

from tests.contract.requests import ADD_SUB_INPUTS, Infer, Output, Tensor, body, path
from tests.integration.tls import context, flags
from tests.raw_http import Connection, frame
from tests.serving import Server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.certificates import Authority, Identity


def test_a_drain_answers_what_is_under_way_and_says_goodbye(
    standard_repository: Path, identity: Identity, authority: Authority
) -> None:
    server = Server.start(standard_repository, *flags(identity), ready=False)
    try:
        asking = Infer("add_sub", ADD_SUB_INPUTS)
        headers, sent = body(asking)
        with (
            Connection(server.http, tls=context(authority)) as idle,
            Connection(server.http, tls=context(authority)) as busy,
            socket.create_connection(server.http, timeout=30) as silent,
        ):
            assert idle.ask("GET", "/v2").status == 200
            assert busy.ask("POST", path("add_sub"), headers, sent).status == 200
            server.terminate()
            # read to the end that the server announces: one that it does not announce is an error here
            assert idle.is_closed()
            assert busy.is_closed()
            assert silent.recv(100) == b""
        assert server.wait() == 0
    finally:
        server.stop()


def test_a_drain_waits_for_a_client_that_reads_a_large_answer_slowly(
    standard_repository: Path, identity: Identity, authority: Authority
) -> None:
    values = bytes(32 << 20)
    asking = Infer(
        "identity_fp32", [Tensor("INPUT0", "FP32", (1, len(values) // 4), raw=values)], [Output("OUTPUT0", binary=True)]
    )
    server = Server.start(standard_repository, *flags(identity), ready=False)
    try:
        with Connection(server.http, tls=context(authority)) as connection:
            headers, sent = body(asking)
            connection.send(frame("POST", path("identity_fp32"), headers, sent))
            # The answer has begun, and there is no room for the rest of it.
            assert connection.socket.recv(1) == b"H"
            server.terminate()
            server.log.wait_for(re.compile("Waiting for in-flight requests"), 30)
            connection.buffer = b"H"
            response = connection.receive()
            assert response.status == 200
            assert response.body.endswith(values)
            assert connection.is_closed()
        assert server.wait() == 0
    finally:
        server.stop()
