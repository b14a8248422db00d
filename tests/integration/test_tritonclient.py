"""The real ``tritonclient.http`` against a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from tritonclient import http
from tritonclient.utils import InferenceServerException

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.serving import Server

VALUES: dict[str, npt.NDArray[Any]] = {
    "BOOL": np.array([[True, False, True]]),
    "UINT8": np.array([[0, 1, 255]], dtype=np.uint8),
    "UINT16": np.array([[0, 1, 65535]], dtype=np.uint16),
    "UINT32": np.array([[0, 1, 2**32 - 1]], dtype=np.uint32),
    "UINT64": np.array([[0, 1, 2**64 - 1]], dtype=np.uint64),
    "INT8": np.array([[-128, 0, 127]], dtype=np.int8),
    "INT16": np.array([[-(2**15), 0, 2**15 - 1]], dtype=np.int16),
    "INT32": np.array([[-(2**31), 0, 2**31 - 1]], dtype=np.int32),
    "INT64": np.array([[-(2**63), 0, 2**63 - 1]], dtype=np.int64),
    "FP16": np.array([[1.5, -0.25, 65504]], dtype=np.float16),
    "FP32": np.array([[1.5, np.inf, -3.4e38]], dtype=np.float32),
    "FP64": np.array([[1.5, -np.inf, 1e300]], dtype=np.float64),
    "BYTES": np.array([[b"", b"a\0b", "ü".encode()]], dtype=np.object_),
    "BF16": np.array([[1.5, -2.0, 256.0]], dtype=ml_dtypes.bfloat16),
}


@pytest.fixture
def client(server: Server) -> Iterator[http.InferenceServerClient]:
    with http.InferenceServerClient(f"{server.http[0]}:{server.http[1]}", concurrency=8) as opened:
        yield opened


def array_input(name: str, datatype: str, values: npt.NDArray[Any], *, binary: bool = True) -> http.InferInput:
    made = http.InferInput(name, list(values.shape), datatype)
    made.set_data_from_numpy(values, binary_data=binary)
    return made


def add_sub_inputs(first: npt.NDArray[Any], second: npt.NDArray[Any], *, binary: bool = True) -> list[http.InferInput]:
    return [
        array_input("INPUT0", "INT32", first, binary=binary),
        array_input("INPUT1", "INT32", second, binary=binary),
    ]


FIRST = np.arange(16, dtype=np.int32).reshape(1, 16)
SECOND = np.full((1, 16), 3, dtype=np.int32)


def test_health_calls_answer_true_or_false(client: http.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("add_sub")
    assert client.is_model_ready("all_versions", "2")
    assert not client.is_model_ready("missing")
    assert not client.is_model_ready("specific_versions", "2")


def test_metadata_and_configuration_calls_answer(client: http.InferenceServerClient) -> None:
    assert client.get_server_metadata()["name"] == "triton"
    assert client.get_model_metadata("add_sub")["inputs"][0]["shape"] == [-1, 16]
    assert client.get_model_metadata("all_versions", "2")["versions"] == ["2"]
    assert client.get_model_config("add_sub")["max_batch_size"] == 8


def test_statistics_calls_answer(client: http.InferenceServerClient) -> None:
    (entry,) = client.get_inference_statistics("add_sub")["model_stats"]
    assert entry["name"] == "add_sub"
    names = {entry["name"] for entry in client.get_inference_statistics()["model_stats"]}
    assert {"add_sub", "slow", "identity_bf16"} <= names


@pytest.mark.parametrize("datatype", VALUES)
def test_every_datatype_goes_there_and_back_in_binary(client: http.InferenceServerClient, datatype: str) -> None:
    values = VALUES[datatype]
    result = client.infer(f"identity_{datatype.lower()}", [array_input("INPUT0", datatype, values)])
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), values)


@pytest.mark.parametrize("datatype", [name for name in VALUES if name not in ("FP16", "BF16", "BYTES")])
def test_every_datatype_that_json_has_goes_there_and_back_in_json(
    client: http.InferenceServerClient, datatype: str
) -> None:
    values = VALUES[datatype]
    result = client.infer(
        f"identity_{datatype.lower()}",
        [array_input("INPUT0", datatype, values, binary=False)],
        outputs=[http.InferRequestedOutput("OUTPUT0", binary_data=False)],
    )
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), values)


def test_strings_go_there_and_back_in_json(client: http.InferenceServerClient) -> None:
    values = np.array([["", "plain", "ü"]], dtype=np.object_)
    result = client.infer(
        "identity_bytes",
        [array_input("INPUT0", "BYTES", values, binary=False)],
        outputs=[http.InferRequestedOutput("OUTPUT0", binary_data=False)],
    )
    assert result.as_numpy("OUTPUT0").tolist() == values.tolist()


def test_not_a_number_travels_in_json(client: http.InferenceServerClient) -> None:
    values = np.array([[np.nan, np.inf, -np.inf]], dtype=np.float32)
    result = client.infer(
        "identity_fp32",
        [array_input("INPUT0", "FP32", values, binary=False)],
        outputs=[http.InferRequestedOutput("OUTPUT0", binary_data=False)],
    )
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), values)


CODINGS = ["gzip", "deflate", None]


@pytest.mark.parametrize("request_coding", CODINGS)
@pytest.mark.parametrize("response_coding", CODINGS)
@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("columns", [1, 1000, 200_000])
def test_requests_and_answers_may_be_compressed(
    client: http.InferenceServerClient,
    request_coding: str | None,
    response_coding: str | None,
    binary: bool,
    columns: int,
) -> None:
    values = np.arange(2 * columns, dtype=np.int32).reshape(2, columns)
    result = client.infer(
        "identity_int32",
        [array_input("INPUT0", "INT32", values, binary=binary)],
        outputs=[http.InferRequestedOutput("OUTPUT0", binary_data=binary)],
        request_compression_algorithm=request_coding,
        response_compression_algorithm=response_coding,
    )
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), values)


def test_errors_are_read_where_an_answer_might_be_compressed(client: http.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="'missing' is not found") as unknown:
        client.infer(
            "missing",
            add_sub_inputs(FIRST, SECOND),
            request_compression_algorithm="gzip",
            response_compression_algorithm="gzip",
        )
    assert unknown.value.status() == "404"


def test_arguments_for_sequences_priorities_and_timeouts_change_nothing_for_a_model_without(
    client: http.InferenceServerClient,
) -> None:
    for sequence in (7, 2**64 - 1, "seven"):
        result = client.infer(
            "add_sub",
            add_sub_inputs(FIRST, SECOND),
            sequence_id=sequence,
            sequence_start=True,
            sequence_end=True,
            priority=3,
            timeout=1_000_000,
            parameters={"text": "t", "whole": 3, "yes": True, "half": 0.5},
        )
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), FIRST + SECOND)


@pytest.mark.parametrize("binary", [True, False])
def test_a_null_character_within_a_string_is_kept(client: http.InferenceServerClient, binary: bool) -> None:
    values = np.array([["abc\0def", "\0"]], dtype=np.object_)
    result = client.infer(
        "identity_bytes",
        [array_input("INPUT0", "BYTES", values, binary=binary)],
        outputs=[http.InferRequestedOutput("OUTPUT0", binary_data=binary)],
    )
    assert result.as_numpy("OUTPUT0").astype(np.bytes_).tolist() == [[b"abc\0def", b""]]


@pytest.mark.parametrize("datatype", ["FP32", "FP64"])
@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_infinities_and_not_a_number_travel_in_every_mixture(
    client: http.InferenceServerClient, datatype: str, binary_in: bool, binary_out: bool
) -> None:
    values = np.array([[np.nan, np.inf, -np.inf, 1, 2, 3]], dtype=np.float32 if datatype == "FP32" else np.float64)
    result = client.infer(
        f"identity_{datatype.lower()}",
        [array_input("INPUT0", datatype, values, binary=binary_in)],
        outputs=[http.InferRequestedOutput("OUTPUT0", binary_data=binary_out)],
    )
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), values)


def test_an_empty_tensor_goes_there_and_back(client: http.InferenceServerClient) -> None:
    values = np.zeros((2, 0), dtype=np.float32)
    for binary in (True, False):
        result = client.infer(
            "identity_fp32",
            [array_input("INPUT0", "FP32", values, binary=binary)],
            outputs=[http.InferRequestedOutput("OUTPUT0", binary_data=binary)],
        )
        assert result.get_output("OUTPUT0")["shape"] == [2, 0]


def test_a_large_tensor_goes_there_and_back(client: http.InferenceServerClient) -> None:
    values = np.random.default_rng(3).standard_normal((2, 3, 512, 512), dtype=np.float32)
    result = client.infer("image", [array_input("INPUT0", "FP32", values)])
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), values)


@pytest.mark.parametrize("binary", [True, False])
def test_inference_adds_and_subtracts(client: http.InferenceServerClient, binary: bool) -> None:
    result = client.infer("add_sub", add_sub_inputs(FIRST, SECOND, binary=binary), request_id="mine")
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), FIRST + SECOND)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), FIRST - SECOND)
    assert result.get_response()["id"] == "mine"
    assert result.get_response()["model_version"] == "1"


def test_only_the_outputs_asked_for_come_back(client: http.InferenceServerClient) -> None:
    outputs = [http.InferRequestedOutput("OUTPUT1", binary_data=True)]
    result = client.infer("add_sub", add_sub_inputs(FIRST, SECOND), outputs=outputs)
    assert result.as_numpy("OUTPUT0") is None
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), FIRST - SECOND)


def test_custom_parameters_and_a_version_are_taken(client: http.InferenceServerClient) -> None:
    values = np.array([[5]], dtype=np.int32)
    result = client.infer(
        "all_versions",
        [array_input("INPUT0", "INT32", values)],
        model_version="2",
        parameters={"mood": "good", "level": 3, "sure": True},
        timeout=1,
    )
    assert result.as_numpy("OUTPUT0").tolist() == [[7]]


def test_many_requests_at_once_each_get_their_own_answer(client: http.InferenceServerClient) -> None:
    numbers = range(200)
    waiting = [
        client.async_infer("add_sub", add_sub_inputs(FIRST + number, SECOND), request_id=str(number))
        for number in numbers
    ]
    for number, request in zip(numbers, waiting, strict=True):
        result = request.get_result()
        assert result.get_response()["id"] == str(number)
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), FIRST + number + SECOND)


def test_errors_carry_the_text_and_the_status_of_the_protocol(client: http.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException) as unknown:
        client.infer("missing", add_sub_inputs(FIRST, SECOND))
    assert unknown.value.message() == "Request for unknown model: 'missing' is not found"
    assert unknown.value.status() == "404"
    with pytest.raises(InferenceServerException) as few:
        client.infer("add_sub", add_sub_inputs(FIRST, SECOND)[:1], request_id="seven")
    assert few.value.message().startswith("[request id: seven] expected 2 inputs but got 1 inputs for model 'add_sub'.")
    assert few.value.status() == "400"
    with pytest.raises(InferenceServerException, match="onnx runtime error"):
        client.infer("gather", [array_input("INDEX", "INT64", np.array([[42]]))])
    with pytest.raises(InferenceServerException, match="requested model 'missing' is not available"):
        client.get_inference_statistics("missing")
    with pytest.raises(InferenceServerException, match="'missing' is not found"):
        client.get_model_config("missing")
