"""Every datatype through JSON and through bytes: the value that goes in comes out."""

from __future__ import annotations

import json
import math
import struct
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.contract import requests
from tests.contract.requests import Infer, Output, Tensor

if TYPE_CHECKING:
    from tests.raw_http import Connection, Response

INTEGERS: dict[str, npt.DTypeLike] = {
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
}


def send(connection: Connection, datatype: str, values: str, count: int) -> Response:
    text = f'{{"inputs":[{{"name":"INPUT0","datatype":"{datatype}","shape":[1,{count}],"data":{values}}}]}}'
    response = connection.ask("POST", requests.path(f"identity_{datatype.lower()}"), body=text.encode())
    assert response.status == 200, response.body
    return response


def data_text(response: Response) -> str:
    """The output's data exactly as written."""
    text = response.body.decode()
    return text[text.index('"data":') + len('"data":') :].removesuffix("}]}")


def send_binary(connection: Connection, datatype: str, values: npt.NDArray[np.generic]) -> bytes:
    tensor = Tensor("INPUT0", datatype, (1, values.size), raw=values.tobytes())
    headers, body = requests.body(Infer(f"identity_{datatype.lower()}", [tensor], [Output("OUTPUT0", binary=True)]))
    response = connection.ask("POST", requests.path(f"identity_{datatype.lower()}"), headers, body)
    assert response.status == 200, response.body
    assert response.infer_json["outputs"][0]["datatype"] == datatype
    return response.binary


@pytest.mark.parametrize("datatype", INTEGERS)
def test_integers_keep_their_values_up_to_both_ends(connection: Connection, datatype: str) -> None:
    bits = 8 * np.dtype(INTEGERS[datatype]).itemsize
    low, high = (0, 2**bits - 1) if datatype.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    values = [low, 0, 1, high - 1, high]
    text = json.dumps(values, separators=(",", ":"))
    assert data_text(send(connection, datatype, text, 5)) == text


@pytest.mark.parametrize(
    ("datatype", "value", "kept"),
    [
        ("INT8", 300, 44),
        ("INT8", -129, 127),
        ("UINT8", 256, 0),
        ("INT16", 32768, -32768),
        ("UINT16", 65537, 1),
        ("INT32", 2**31, -(2**31)),
        ("INT32", 2**40 + 5, 5),
        ("UINT32", 2**32 + 7, 7),
    ],
)
def test_integers_too_large_for_their_datatype_keep_the_low_bits(
    connection: Connection, datatype: str, value: int, kept: int
) -> None:
    assert data_text(send(connection, datatype, f"[{value}]", 1)) == f"[{kept}]"


def test_booleans_are_true_and_false(connection: Connection) -> None:
    assert data_text(send(connection, "BOOL", "[true,false,true]", 3)) == "[true,false,true]"


@pytest.mark.parametrize(
    ("sent", "written"),
    [
        ("1", "1.0"),
        ("-0.0", "-0.0"),
        ("0.1", "0.1"),
        ("1.5e300", "1.5e300"),
        ("5e-324", "5e-324"),
        ("1e21", "1e21"),
        ("1E20", "100000000000000000000.0"),
        ("1e16", "10000000000000000.0"),
        ("1e-6", "0.000001"),
        ("1e-7", "1e-7"),
        ("123456.789", "123456.789"),
        ("1e-400", "0.0"),
        ("NaN", "NaN"),
        ("Infinity", "Infinity"),
        ("-Infinity", "-Infinity"),
        ("Inf", "Infinity"),
        ("-Inf", "-Infinity"),
        ("18446744073709551615", "18446744073709552000.0"),
    ],
)
def test_doubles_are_written_as_triton_writes_them(connection: Connection, sent: str, written: str) -> None:
    assert data_text(send(connection, "FP64", f"[{sent}]", 1)) == f"[{written}]"


@pytest.mark.parametrize(
    ("sent", "written"),
    [
        ("1", "1.0"),
        ("0.1", "0.10000000149011612"),
        ("0.5", "0.5"),
        ("16777217", "16777216.0"),
        ("1e39", "Infinity"),
        ("-1e39", "-Infinity"),
        ("1e-50", "0.0"),
        ("NaN", "NaN"),
        ("-Infinity", "-Infinity"),
    ],
)
def test_floats_are_written_as_the_double_of_the_same_value(connection: Connection, sent: str, written: str) -> None:
    assert data_text(send(connection, "FP32", f"[{sent}]", 1)) == f"[{written}]"


@pytest.mark.parametrize(("datatype", "kind"), [("FP32", np.float32), ("FP64", np.float64)])
def test_random_floats_survive_json_bit_for_bit(connection: Connection, datatype: str, kind: type[np.floating]) -> None:
    generator = np.random.default_rng(20)
    width = np.dtype(kind).itemsize
    values = np.frombuffer(generator.bytes(2000 * width), dtype=kind)
    values = values[np.isfinite(values)]
    text = json.dumps([float(value) for value in values])
    answered = np.array(send(connection, datatype, text, values.size).json()["outputs"][0]["data"], dtype=kind)
    assert answered.tobytes() == values.tobytes()


def test_floats_of_many_digits_are_read_exactly(connection: Connection) -> None:
    texts = [
        "0.1000000000000000055511151231257827021181583404541015625",
        "9007199254740993.0",
        "2.2250738585072014e-308",
        "1.7976931348623157e308",
        "0." + "0" * 300 + "1",
        "1" + "0" * 300,
        "123456789012345678901234567890",
    ]
    response = send(connection, "FP64", f"[{','.join(texts)}]", len(texts))
    answered = response.json()["outputs"][0]["data"]
    for text, value in zip(texts, answered, strict=True):
        assert math.isclose(value, float(text), rel_tol=1e-15), text


@pytest.mark.parametrize("datatype", [*INTEGERS, "FP32", "FP64", "BOOL", "FP16", "BF16"])
def test_binary_tensors_come_back_bit_for_bit(connection: Connection, datatype: str) -> None:
    kinds: dict[str, npt.DTypeLike] = {
        **INTEGERS,
        "FP32": np.float32,
        "FP64": np.float64,
        "BOOL": np.bool_,
        "FP16": np.float16,
        "BF16": ml_dtypes.bfloat16,
    }
    special = [0, 1] if datatype == "BOOL" else [0, 1, 2, 100]
    values = np.array(special, dtype=kinds[datatype])
    assert send_binary(connection, datatype, values) == values.tobytes()


@pytest.mark.parametrize("datatype", ["FP16", "BF16", "FP32", "FP64"])
def test_any_bit_pattern_of_a_float_survives_in_bytes(connection: Connection, datatype: str) -> None:
    width = {"FP16": 2, "BF16": 2, "FP32": 4, "FP64": 8}[datatype]
    patterns = np.random.default_rng(7).bytes(512 * width) + b"\xff" * width + b"\0" * width
    assert send_binary(connection, datatype, np.frombuffer(patterns, dtype=f"V{width}")) == patterns


def test_half_precision_may_be_sent_in_bytes_and_refused_only_as_json(connection: Connection) -> None:
    values = np.array([1.5, -2.0, 65504.0], dtype=np.float16)
    assert struct.unpack("<3e", send_binary(connection, "FP16", values)) == (1.5, -2.0, 65504.0)
