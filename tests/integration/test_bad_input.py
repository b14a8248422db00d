"""Requests that lie about sizes, and clients that leave in the middle: errors in time, and memory stays bounded."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from typing import TYPE_CHECKING

import pytest

from tests.contract import requests
from tests.contract.requests import ADD_SUB_INPUTS, HEADER_LENGTH, Infer, Output, Tensor
from tests.raw_http import Connection, frame
from tests.serving import Server
from tests.waiting import settles

if TYPE_CHECKING:
    from pathlib import Path

HEADERS, BODY = requests.body(Infer("add_sub", ADD_SUB_INPUTS, [Output("OUTPUT0")]))
PATH = requests.path("add_sub")
SUM = list(range(1, 17))
HUGE = (2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


@pytest.mark.parametrize("datatype", ["BOOL", "INT32", "FP64", "FP16", "BYTES"])
@pytest.mark.parametrize("shape", [[1, size] for size in HUGE] + [[size, size] for size in HUGE], ids=str)
def test_a_shape_that_promises_the_world_is_refused(server: Server, datatype: str, shape: list[int]) -> None:
    model = f"identity_{datatype.lower()}"
    sources: list[tuple[dict[str, object], bytes]] = [
        ({"data": ["a"] if datatype == "BYTES" else [1]}, b""),
        ({"parameters": {"binary_data_size": 8}}, bytes(8)),
        ({"parameters": {"binary_data_size": 2**63}}, bytes(8)),
    ]
    for source, tail in sources:
        entry = {"name": "INPUT0", "datatype": datatype, "shape": shape, **source}
        text = json.dumps({"inputs": [entry]}).encode()
        response = server.post(requests.path(model), text + tail, [(HEADER_LENGTH, str(len(text)))])
        assert response.status in (400, 500), response
        assert response.error


def test_a_dimension_of_zero_beside_a_huge_one_is_an_error_or_empty(server: Server) -> None:
    entry = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 3, 2**62, 0], "data": []}
    response = server.post(requests.path("image"), json.dumps({"inputs": [entry]}).encode())
    assert response.status in (200, 400, 500)
    assert server.is_ready()


def descriptors(server: Server) -> int:
    return len(os.listdir(f"/proc/{server.pid}/fd"))  # noqa: PTH208 - the entries vanish while they are looked at


@pytest.mark.clock
def test_five_hundred_clients_leave_in_the_middle_while_others_are_served(server: Server) -> None:
    at_rest = descriptors(server)
    whole = frame("POST", PATH, HEADERS, BODY)
    gone = threading.Event()
    served: list[int] = []
    wrong: list[object] = []

    def serve() -> None:
        with server.connect() as connection:
            while not gone.is_set():
                response = connection.ask("POST", PATH, HEADERS, BODY)
                if response.status != 200 or response.json()["outputs"][0]["data"] != SUM:
                    wrong.append(response)
                served.append(response.status)

    workers = [threading.Thread(target=serve) for _ in range(3)]
    for worker in workers:
        worker.start()
    try:
        opened: list[Connection] = []
        for number in range(500):
            connection = server.connect()
            connection.send(whole[: number * len(whole) // 500])
            if number % 3 == 0:
                # The connection is reset instead of closed.
                connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            opened.append(connection)
        for connection in opened:
            connection.close()
    finally:
        gone.set()
        for worker in workers:
            worker.join()
    assert wrong == []
    assert len(served) > 3
    settles(lambda: descriptors(server) <= at_rest + 4, "the connections are closed on the server's side too")


def test_clients_that_say_nothing_do_not_keep_others_waiting(server: Server) -> None:
    silent = [server.connect() for _ in range(200)]
    try:
        for connection in silent[::2]:
            connection.send(b"POST ")
        with server.connect() as connection:
            for _ in range(20):
                assert connection.ask("POST", PATH, HEADERS, BODY).status == 200
    finally:
        for connection in silent:
            connection.close()


def test_a_client_that_does_not_read_its_answers_keeps_nobody_waiting(server: Server) -> None:
    tensor = Tensor("INPUT0", "FP32", (1, 3, 256, 256), raw=bytes(3 * 256 * 256 * 4))
    headers, body = requests.body(Infer("image", [tensor], [Output("OUTPUT0", binary=True)]))
    with server.connect() as deaf:
        deaf.socket.setblocking(False)
        data = frame("POST", requests.path("image"), headers, body) * 20
        try:
            while data:
                data = data[deaf.socket.send(data) :]
        except BlockingIOError:
            pass  # the server has stopped reading from who does not read
        with server.connect() as connection:
            for _ in range(20):
                assert connection.ask("POST", PATH, HEADERS, BODY).status == 200
    assert server.is_ready()


@pytest.mark.alone
def test_memory_stays_where_it_was_after_thousands_of_requests(server: Server) -> None:
    tensor = Tensor("INPUT0", "FP32", (1, 3, 64, 64), raw=bytes(3 * 64 * 64 * 4))
    binary_headers, binary = requests.body(Infer("image", [tensor], [Output("OUTPUT0", binary=True)]))
    json_values = Tensor("INPUT0", "FP32", (1, 3, 32, 32), values=[0.5] * (3 * 32 * 32))
    _, text = requests.body(Infer("image", [json_values]))
    image = requests.path("image")

    def run(rounds: int) -> None:
        with server.connect() as connection:
            for number in range(rounds):
                assert connection.ask("POST", image, binary_headers, binary).status == 200
                assert connection.ask("POST", image, body=text).status == 200
                assert connection.ask("POST", image, body=text[: -1 - number % 7]).status == 500
                assert connection.ask("POST", requests.path(f"missing_{number}"), body=text).status == 404

    run(100)
    before = server.memory_kib()
    run(600)
    assert server.memory_kib() - before < 16 * 1024


@pytest.mark.alone
def test_large_requests_give_their_memory_back(server: Server) -> None:
    side = 1024
    tensor = Tensor("INPUT0", "FP32", (1, 3, side, side), raw=bytes(3 * side * side * 4))
    headers, body = requests.body(Infer("image", [tensor], [Output("OUTPUT0", binary=True)]))
    for _ in range(2):
        assert server.post(requests.path("image"), body, headers).status == 200
    before = server.memory_kib()
    for _ in range(20):
        assert server.post(requests.path("image"), body, headers).status == 200
    assert server.memory_kib() - before < 4 * len(body) // 1024


def test_the_log_is_not_written_by_clients(server: Server, tmp_path: Path) -> None:
    marker = f"INJECTED-{os.getpid()}"
    document = json.loads(BODY)
    document["id"] = f"x\r\n{marker} kushi: all is well"
    assert server.post(PATH, json.dumps(document).encode()).status == 200
    document["inputs"] = document["inputs"][:1]
    assert server.post(PATH, json.dumps(document).encode()).status == 400
    assert not any(line.startswith(marker) for line in server.log.lines)
