"""The local door as any program sees it: whose it is, and that its messages are those of the protocol."""

from __future__ import annotations

import os
import re
import socket
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from tests import models
from tests.serving import run_to_end
from tests.waiting import settles

if TYPE_CHECKING:
    from tests.conftest import StartServer
    from tests.serving import Server

PORTS = ("--http-address=127.0.0.1", "--http-port=0", "--metrics-address=127.0.0.1", "--metrics-port=0")
HELLO, INFER, ANSWER, FAILURE = 1, 2, 5, 6
HEADER = struct.Struct("<IIQ")
NOBODY = 65534
PATIENCE_S = 30


@pytest.fixture
def door(repository: Path, start_server: StartServer) -> Iterator[tuple[Server, Path]]:
    """A server with the model add_sub, and the path of its local door, to which other users find the way"""
    models.write_add_sub(repository)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "kushi.sock"
        yield start_server(repository, f"--local-socket={path}"), path


def connect(path: Path) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(PATIENCE_S)
    try:
        stream.connect(str(path))
    except OSError:
        stream.close()
        raise
    return stream


@contextmanager
def another_user() -> Iterator[None]:
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def send(stream: socket.socket, kind: int, number: int, body: bytes) -> None:
    stream.sendall(HEADER.pack(len(body), kind, number) + body)


def receive(stream: socket.socket) -> tuple[int, int, bytes]:
    length, kind, number = HEADER.unpack(exactly(stream, HEADER.size))
    return kind, number, exactly(stream, length)


def exactly(stream: socket.socket, length: int) -> bytes:
    whole = b""
    while len(whole) < length:
        part = stream.recv(length - len(whole))
        assert part, "the server has closed"
        whole += part
    return whole


def greet(stream: socket.socket) -> None:
    send(stream, HELLO, 0, b"\x08\x03")
    kind, number, body = receive(stream)
    assert (kind, number) == (HELLO, 0)
    assert body.startswith(b"\x08\x03")


def test_messages_are_those_of_the_open_inference_protocol(door: tuple[Server, Path]) -> None:
    request = service_pb2.ModelInferRequest(model_name="add_sub", id="seven")
    values = np.arange(16, dtype=np.int32)
    for name in ("INPUT0", "INPUT1"):
        request.inputs.add(name=name, datatype="INT32", shape=[1, 16])
        request.raw_input_contents.append(values.tobytes())
    request.outputs.add(name="OUTPUT0")
    request.parameters["priority"].int64_param = 0
    with connect(door[1]) as stream:
        greet(stream)
        send(stream, INFER, 7, request.SerializeToString())
        kind, number, body = receive(stream)
        assert (kind, number) == (ANSWER, 7)
        answer = service_pb2.ModelInferResponse.FromString(body)
        assert (answer.model_name, answer.model_version, answer.id) == ("add_sub", "1", "seven")
        (output,) = answer.outputs
        assert (output.name, output.datatype, list(output.shape)) == ("OUTPUT0", "INT32", [1, 16])
        assert np.array_equal(np.frombuffer(answer.raw_output_contents[0], np.int32), 2 * values)
        request.model_name = "nobody"
        send(stream, INFER, 8, request.SerializeToString())
        kind, number, body = receive(stream)
        assert (kind, number) == (FAILURE, 8)
        assert b"Request for unknown model: 'nobody' is not found" in body


def test_the_socket_is_its_owners_alone_and_goes_with_the_server(door: tuple[Server, Path]) -> None:
    server, path = door
    assert path.stat().st_mode & 0o777 == 0o600
    assert f"Started LocalService at unix://{path}" in server.log.text()
    assert server.stop() == 0
    assert not path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to become another user")
def test_another_user_is_turned_away_by_the_file_and_by_the_server(door: tuple[Server, Path]) -> None:
    server, path = door
    with another_user(), pytest.raises(PermissionError):
        connect(path)
    path.chmod(0o666)
    with another_user():
        stream = connect(path)
    with stream:
        assert stream.recv(1) == b""
    server.log.wait_for(re.compile(rf"at the local door: it runs as user {NOBODY}, expected 0"), PATIENCE_S)
    with connect(path) as own:
        greet(own)


def test_a_socket_left_behind_is_taken_over_and_a_living_one_is_not(
    repository: Path, start_server: StartServer, tmp_path: Path
) -> None:
    path = tmp_path / "kushi.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    start_server(repository, f"--local-socket={path}")
    with connect(path) as stream:
        greet(stream)
    ended = run_to_end(f"--model-repository={repository}", *PORTS, f"--local-socket={path}")
    assert ended.returncode == 1
    assert f"failed to start the local service at {path}: Socket '{path}' already in use" in ended.stdout


@pytest.mark.clock
def test_a_client_that_dies_in_the_middle_of_everything_leaves_no_descriptors(door: tuple[Server, Path]) -> None:
    server, path = door
    descriptors = Path(f"/proc/{server.process.pid}/fd")
    with connect(path) as stream:
        greet(stream)
        before = len(list(descriptors.iterdir()))
    for length in range(0, HEADER.size * 2, 3):
        with connect(path) as stream:
            stream.sendall((HEADER.pack(2, HELLO, 0) + b"\x08\x03" + HEADER.pack(1 << 20, INFER, 1))[:length])
    settles(lambda: len(list(descriptors.iterdir())) < before, "its descriptors are closed")
