"""A server that ends does not wait as long as one that serves for clients that give nothing, or take nothing."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from tests import models, raw_http
from tests.contract import requests
from tests.contract.requests import Infer, Output, Tensor
from tests.integration.grpc_doors import SERVICE, add_sub_request, port_of
from tests.integration.python_models import models as python_models
from tests.integration.test_grpc_streams import counting_request
from tests.raw_http2 import END_HEADERS, Http2, Kind, frame, head, message
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer

pytestmark = pytest.mark.clock

PATH = "/v2/models/identity_uint8/infer"
LARGE = 32 << 20


def test_deaf_clients_and_halves_of_requests_keep_a_drain_ten_seconds(
    repository: Path, start_server: StartServer
) -> None:
    models.write_add_sub(repository)
    models.write_identities(repository)
    python_models.write(repository, "counting", python_models.COUNTING, python_models.COUNTING_CONFIG)
    server = start_server(repository)
    grpc = ("127.0.0.1", port_of(server))
    with (
        Http2(grpc, window=0) as deaf_stream,
        Http2(grpc) as half_message,
        socket.create_connection(server.http) as half_body,
        socket.socket() as deaf,
    ):
        deaf_stream.ask(1, f"{SERVICE}/ModelStreamInfer", counting_request(100_000).SerializeToString())
        assert deaf_stream.until_kind(Kind.HEADERS)
        whole = message(add_sub_request().SerializeToString())
        begun = frame(Kind.HEADERS, END_HEADERS, 1, head(f"{SERVICE}/ModelInfer"))
        half_message.send(begun, frame(Kind.DATA, 0, 1, whole[:20]))
        assert half_message.is_answered()
        half_body.sendall(f"POST {PATH} HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n{{".encode())
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(server.http)
        tensor = Tensor("INPUT0", "UINT8", (1, LARGE), raw=bytes(LARGE))
        headers, body = requests.body(Infer("identity_uint8", [tensor], [Output("OUTPUT0", binary=True)]))
        deaf.sendall(raw_http.frame("POST", PATH, headers, body))
        held = "kushi_inflight_bytes"
        eventually(lambda: server.metrics()[held] >= LARGE, "the answer waits for its client")
        server.terminate()
        # without a drain's patience it would be thirty seconds, and then exit code 1
        assert server.wait(25) == 0
