"""Requests that are nothing but the bytes of one tensor: the header length is 0."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from tests import models
from tests.contract import requests
from tests.contract.requests import HEADER_LENGTH, strings
from tests.raw_http import Connection, chunked, frame

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.raw_http import Response

RAW = [(HEADER_LENGTH, "0")]
ROW = struct.pack("<16i", *range(16))


def ask(connection: Connection, model: str, body: bytes) -> Response:
    return connection.ask("POST", requests.path(model), RAW, body)


@pytest.mark.parametrize("count", [1, 16, 100_000])
def test_the_free_dimension_is_what_the_size_leaves(either: Connection, count: int) -> None:
    body = struct.pack(f"<{count}i", *range(count))
    response = ask(either, "identity_int32", body)
    expected = {
        "model_name": "identity_int32",
        "model_version": "1",
        "outputs": [
            {
                "name": "OUTPUT0",
                "datatype": "INT32",
                "shape": [1, count],
                "parameters": {"binary_data_size": 4 * count},
            }
        ],
    }
    assert response.infer_json == expected
    assert response.binary == body
    assert response.header("content-type") == "application/octet-stream"


@pytest.mark.parametrize(
    ("model", "shape"),
    [("reshaped", [1, 4, 4]), ("completed_fixed", [2, 3]), ("scalar", [1]), ("scalar_batched", [1, 1])],
)
def test_a_fixed_shape_is_that_of_the_configuration(connection: Connection, model: str, shape: list[int]) -> None:
    count = 1
    for size in shape:
        count *= size
    response = ask(connection, model, bytes(4 * count))
    assert response.status == 200, response.body
    (output,) = response.infer_json["outputs"]
    assert (output["shape"], response.binary) == (shape, bytes(4 * count))


def test_a_model_without_batches_gets_no_row(connection: Connection) -> None:
    response = ask(connection, "nonzero", struct.pack("<4i", 0, 5, 0, 5))
    assert response.infer_json["outputs"][0]["shape"] == [1, 2]
    assert response.binary == struct.pack("<2q", 1, 3)


@pytest.mark.parametrize("value", [b"427", b"", b"null \0 within", b"x" * 100_000, strings(b"abc")])
def test_a_string_is_the_whole_body(either: Connection, value: bytes) -> None:
    response = ask(either, "string", value)
    assert response.infer_json["outputs"][0]["shape"] == [1, 1]
    assert response.binary == strings(value)


@pytest.mark.parametrize("datatype", ["BOOL", "FP16", "BF16", "FP64", "UINT8"])
def test_every_datatype_of_a_fixed_size_may_be_raw(connection: Connection, datatype: str) -> None:
    size = {"BOOL": 1, "UINT8": 1, "FP16": 2, "BF16": 2, "FP64": 8}[datatype]
    response = ask(connection, f"identity_{datatype.lower()}", bytes(5 * size))
    assert response.infer_json["outputs"][0]["shape"] == [1, 5]
    assert response.binary == bytes(5 * size)


def test_no_byte_is_an_empty_tensor(connection: Connection) -> None:
    for headers in (RAW, []):
        response = connection.ask("POST", requests.path("identity_int32"), headers)
        assert response.status == 200, response.body
        (output,) = response.json()["outputs"]
        assert (output["shape"], output["parameters"]) == ([1, 0], {"binary_data_size": 0})


def test_a_raw_tensor_may_come_in_chunks(connection: Connection) -> None:
    headers = [*RAW, ("Transfer-Encoding", "chunked")]
    connection.send(frame("POST", requests.path("identity_int32"), headers) + chunked([ROW[:3], ROW[3:]]))
    assert connection.receive().binary == ROW


def test_a_raw_tensor_too_large_is_refused(repository: Path, start_server: StartServer) -> None:
    models.write_identities(repository)
    server = start_server(repository, "--http-max-input-size=1000")
    with server.connect() as connection:
        assert ask(connection, "identity_int32", bytes(1000)).status == 200
        response = ask(connection, "identity_int32", bytes(1004))
        expected = (
            "Raw input has a byte_size (1004 bytes) that exceeds the maximum allowed value of 1000 bytes. "
            "Use --http-max-input-size to increase the limit."
        )
        assert (response.status, response.error) == (400, expected)
