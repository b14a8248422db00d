"""What a served request is answered with: members, order, representations, headers."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.contract import requests
from tests.contract.requests import ADD_SUB_INPUTS, HEADER_LENGTH, Infer, Output, Tensor, strings

if TYPE_CHECKING:
    from tests.raw_http import Connection, Response

SUM = list(range(1, 17))
DIFFERENCE = list(range(-1, 15))
ROW = struct.pack("<16i", *range(16))


def ask(connection: Connection, request: Infer) -> Response:
    headers, body = requests.body(request)
    response = connection.ask("POST", requests.path(request.model, request.version), headers, body)
    assert response.status == 200, response.body
    return response


def ask_text(connection: Connection, model: str, text: str) -> Response:
    response = connection.ask("POST", requests.path(model), body=text.encode())
    assert response.status == 200, response.body
    return response


def identity_text(datatype: str, values: str, shape: str) -> str:
    return f'{{"inputs":[{{"name":"INPUT0","datatype":"{datatype}","shape":{shape},"data":{values}}}]}}'


def test_a_json_answer_is_compact_and_has_its_members_in_order(connection: Connection) -> None:
    response = ask(connection, Infer("add_sub", ADD_SUB_INPUTS))
    expected = {
        "model_name": "add_sub",
        "model_version": "1",
        "outputs": [
            {"name": "OUTPUT0", "datatype": "INT32", "shape": [1, 16], "data": SUM},
            {"name": "OUTPUT1", "datatype": "INT32", "shape": [1, 16], "data": DIFFERENCE},
        ],
    }
    assert response.body == json.dumps(expected, separators=(",", ":")).encode()
    assert response.header("content-type") == "application/json"
    assert response.header("inference-header-content-length") is None
    assert response.header("content-length") == str(len(response.body))


def test_a_binary_answer_is_json_then_the_bytes_in_order_of_outputs(connection: Connection) -> None:
    request = Infer("add_sub", ADD_SUB_INPUTS, parameters={"binary_data_output": True})
    response = ask(connection, request)
    sizes = {"binary_data_size": 64}
    expected = {
        "model_name": "add_sub",
        "model_version": "1",
        "outputs": [
            {"name": "OUTPUT0", "datatype": "INT32", "shape": [1, 16], "parameters": sizes},
            {"name": "OUTPUT1", "datatype": "INT32", "shape": [1, 16], "parameters": sizes},
        ],
    }
    text = json.dumps(expected, separators=(",", ":")).encode()
    assert response.body == text + struct.pack("<16i", *SUM) + struct.pack("<16i", *DIFFERENCE)
    assert response.header("inference-header-content-length") == str(len(text))
    assert response.header("content-type") == "application/octet-stream"


@pytest.mark.parametrize("text", ["seven", "a b", 'quote " and \\', "null \0 within", "ü€😀", "x" * 5000])
def test_the_id_comes_back_first(connection: Connection, text: str) -> None:
    response = ask(connection, Infer("add_sub", ADD_SUB_INPUTS, id=text))
    assert next(iter(response.json())) == "id"
    assert response.json()["id"] == text.partition("\0")[0]


def test_an_empty_id_counts_as_none(connection: Connection) -> None:
    _, body = requests.body(Infer("add_sub", ADD_SUB_INPUTS))
    response = connection.ask("POST", requests.path("add_sub"), body=b'{"id":"",' + body[1:])
    assert response.status == 200
    assert "id" not in response.json()


def test_parameters_of_every_type_are_taken_and_not_sent_back(connection: Connection) -> None:
    parameters = {"text": "a", "whole": -5, "yes": True, "fraction": 0.5, "large": 2**64 - 1, "headers": "h"}
    response = ask(connection, Infer("add_sub", ADD_SUB_INPUTS, parameters=parameters))
    assert "parameters" not in response.json()


@pytest.mark.parametrize("sequence", [0, 7, 2**64 - 1, "seven", ""])
def test_parameters_of_sequences_queues_and_priorities_change_nothing_for_a_model_without(
    connection: Connection, sequence: int | str
) -> None:
    parameters = {
        "sequence_id": sequence,
        "sequence_start": True,
        "sequence_end": False,
        "priority": 2**64 - 1,
        "timeout": 5,
    }
    response = ask(connection, Infer("add_sub", ADD_SUB_INPUTS, parameters=parameters))
    assert response.json()["outputs"][0]["data"] == SUM


def test_members_that_nobody_knows_are_ignored(connection: Connection) -> None:
    _, body = requests.body(Infer("add_sub", ADD_SUB_INPUTS))
    document = json.loads(body)
    document["mood"] = {"deep": [1, {"deeper": None}]}
    document["inputs"][0]["mood"] = "fine"
    document["inputs"][0]["parameters"] = {"mood": [1, 2]}
    document["outputs"] = [{"name": "OUTPUT0", "mood": 1.5, "parameters": "none"}]
    response = ask_text(connection, "add_sub", json.dumps(document))
    assert response.json()["outputs"][0]["data"] == SUM


def test_the_order_of_members_does_not_matter(connection: Connection) -> None:
    entries = [
        f'{{"data":{list(range(16))},"shape":[1,16],"datatype":"INT32","name":"INPUT0"}}',
        f'{{"shape":[1,16],"data":{[1] * 16},"name":"INPUT1","datatype":"INT32"}}',
    ]
    text = f'{{"outputs":[{{"name":"OUTPUT0"}}],"inputs":[{",".join(entries)}],"id":"late"}}'
    response = ask_text(connection, "add_sub", text)
    assert response.json()["id"] == "late"
    assert response.json()["outputs"][0]["data"] == SUM


def test_the_order_of_inputs_does_not_matter(connection: Connection) -> None:
    response = ask(connection, Infer("add_sub", ADD_SUB_INPUTS[::-1]))
    assert [output["data"] for output in response.json()["outputs"]] == [SUM, DIFFERENCE]


def test_names_and_strings_may_be_written_with_escapes(connection: Connection) -> None:
    _, body = requests.body(Infer("add_sub", ADD_SUB_INPUTS))
    text = body.decode().replace('"INPUT0"', '"\\u0049NPUT0"').replace('"datatype"', '"dat\\u0061type"')
    assert ask_text(connection, "add_sub", text).json()["outputs"][0]["data"] == SUM


def test_white_space_is_allowed_everywhere(connection: Connection) -> None:
    _, body = requests.body(Infer("add_sub", ADD_SUB_INPUTS))
    text = json.dumps(json.loads(body), indent="\t").replace("\n", "\r\n ")
    assert ask_text(connection, "add_sub", f" \n{text}\t ").json()["outputs"][0]["data"] == SUM


def test_a_byte_order_mark_is_skipped(connection: Connection) -> None:
    _, body = requests.body(Infer("add_sub", ADD_SUB_INPUTS))
    assert ask_text(connection, "add_sub", "\ufeff" + body.decode()).status == 200


@pytest.mark.parametrize("wanted", [["OUTPUT0"], ["OUTPUT1"], ["OUTPUT1", "OUTPUT0"]])
def test_only_the_outputs_asked_for_come_back_in_the_order_of_the_model(
    connection: Connection, wanted: list[str]
) -> None:
    response = ask(connection, Infer("add_sub", ADD_SUB_INPUTS, [Output(name) for name in wanted]))
    expected = {"OUTPUT0": SUM, "OUTPUT1": DIFFERENCE}
    found = [(output["name"], output["data"]) for output in response.json()["outputs"]]
    assert found == [(name, expected[name]) for name in sorted(wanted)]


def test_an_empty_list_of_outputs_asks_for_all(connection: Connection) -> None:
    _, body = requests.body(Infer("add_sub", ADD_SUB_INPUTS))
    response = ask_text(connection, "add_sub", body.decode()[:-1] + ',"outputs":[]}')
    assert [output["name"] for output in response.json()["outputs"]] == ["OUTPUT0", "OUTPUT1"]


@pytest.mark.parametrize("first", [True, False], ids=["first input binary", "first input JSON"])
@pytest.mark.parametrize("second", [True, False], ids=["second input binary", "second input JSON"])
@pytest.mark.parametrize("out0", [True, False], ids=["first output binary", "first output JSON"])
@pytest.mark.parametrize("out1", [True, False], ids=["second output binary", "second output JSON"])
def test_json_and_binary_mix_freely(
    connection: Connection, *, first: bool, second: bool, out0: bool, out1: bool
) -> None:
    ones = struct.pack("<16i", *[1] * 16)
    inputs = [
        Tensor("INPUT0", "INT32", (1, 16), raw=ROW) if first else ADD_SUB_INPUTS[0],
        Tensor("INPUT1", "INT32", (1, 16), raw=ones) if second else ADD_SUB_INPUTS[1],
    ]
    response = ask(connection, Infer("add_sub", inputs, [Output("OUTPUT0", out0), Output("OUTPUT1", out1)]))
    expected = b""
    for output, binary, values in zip(response.infer_json["outputs"], (out0, out1), (SUM, DIFFERENCE), strict=True):
        if binary:
            assert output["parameters"] == {"binary_data_size": 64}
            assert "data" not in output
            expected += struct.pack("<16i", *values)
        else:
            assert output["data"] == values
            assert "parameters" not in output
    assert response.binary == expected


def test_a_listed_output_is_json_even_if_the_request_asks_for_binary(connection: Connection) -> None:
    request = Infer("add_sub", ADD_SUB_INPUTS, [Output("OUTPUT0")], parameters={"binary_data_output": True})
    assert ask(connection, request).json()["outputs"][0]["data"] == SUM


def test_binary_data_output_false_means_json(connection: Connection) -> None:
    request = Infer("add_sub", ADD_SUB_INPUTS, parameters={"binary_data_output": False})
    assert ask(connection, request).json()["outputs"][0]["data"] == SUM


def test_the_header_length_may_be_given_for_a_request_without_binary_data(connection: Connection) -> None:
    _, body = requests.body(Infer("add_sub", ADD_SUB_INPUTS))
    for text in (str(len(body)), f" {len(body)}", f"+{len(body)}", f"{len(body)}abc"):
        response = connection.ask("POST", requests.path("add_sub"), [(HEADER_LENGTH, text)], body)
        assert response.status == 200, text


def test_a_request_of_several_rows_is_answered_with_as_many(connection: Connection) -> None:
    values = np.arange(5 * 16, dtype=np.int32).reshape(5, 16)
    inputs = [
        Tensor("INPUT0", "INT32", (5, 16), raw=values.tobytes()),
        Tensor("INPUT1", "INT32", (5, 16), values=values.tolist()),
    ]
    response = ask(connection, Infer("add_sub", inputs, [Output("OUTPUT0", binary=True)]))
    assert response.infer_json["outputs"][0]["shape"] == [5, 16]
    assert response.binary == (values * 2).tobytes()


@pytest.mark.parametrize(
    "values",
    [
        "[1,2,3,4,5,6]",
        "[[1,2,3],[4,5,6]]",
        "[[[1],[2]],[[3],[4]],[[5],[6]]]",
        "[[1,2,3,4],5,[[6]]]",
        "[[],1,2,3,4,5,6]",
    ],
)
def test_nested_and_flat_data_mean_the_same(connection: Connection, values: str) -> None:
    response = ask_text(connection, "identity_int32", identity_text("INT32", values, "[2,3]"))
    assert response.json()["outputs"][0]["data"] == [1, 2, 3, 4, 5, 6]


def test_nesting_up_to_the_limit_is_served(connection: Connection) -> None:
    values = "[" * 99 + "1,2" + "]" * 99
    response = ask_text(connection, "identity_int32", identity_text("INT32", values, "[1,2]"))
    assert response.json()["outputs"][0]["data"] == [1, 2]


@pytest.mark.parametrize("values", ["[]", "[[],[]]", "[1,2,3]", "null", "5"])
def test_data_of_an_input_without_elements_is_not_looked_at(connection: Connection, values: str) -> None:
    response = ask_text(connection, "identity_int32", identity_text("INT32", values, "[2,0]"))
    assert response.json()["outputs"] == [{"name": "OUTPUT0", "datatype": "INT32", "shape": [2, 0], "data": []}]


@pytest.mark.parametrize("datatype", ["INT32", "BYTES", "FP16", "BOOL"])
def test_an_empty_binary_tensor_adds_no_bytes(connection: Connection, datatype: str) -> None:
    tensor = Tensor("INPUT0", datatype, (3, 0), raw=b"")
    response = ask(connection, Infer(f"identity_{datatype.lower()}", [tensor], parameters={"binary_data_output": True}))
    assert response.json()["outputs"] == [
        {"name": "OUTPUT0", "datatype": datatype, "shape": [3, 0], "parameters": {"binary_data_size": 0}}
    ]
    assert response.header("inference-header-content-length") is None
    assert response.header("content-type") == "application/json"


@pytest.mark.parametrize("found", [0, 1, 4])
def test_an_output_may_have_a_size_that_only_the_data_decides(connection: Connection, found: int) -> None:
    tensor = Tensor("INPUT0", "INT32", (4,), values=[1] * found + [0] * (4 - found))
    output = ask(connection, Infer("nonzero", [tensor])).json()["outputs"][0]
    assert (output["shape"], output["data"]) == ([1, found], list(range(found)))


def test_a_model_of_rank_0_takes_and_gives_one_element(connection: Connection) -> None:
    output = ask(connection, Infer("scalar", [Tensor("INPUT0", "FP32", (1,), values=[1.5])])).json()["outputs"][0]
    assert (output["shape"], output["data"]) == ([1], [3.0])


def test_a_model_of_rank_0_batches(connection: Connection) -> None:
    tensor = Tensor("INPUT0", "FP32", (3, 1), values=[1, 2, 3])
    output = ask(connection, Infer("scalar_batched", [tensor])).json()["outputs"][0]
    assert (output["shape"], output["data"]) == ([3, 1], [2.0, 4.0, 6.0])


def test_reshape_shows_the_shapes_of_the_configuration(connection: Connection) -> None:
    tensor = Tensor("INPUT0", "INT32", (2, 2, 8), values=list(range(32)))
    output = ask(connection, Infer("reshaped", [tensor])).json()["outputs"][0]
    assert (output["shape"], output["data"]) == ([2, 4, 4], list(range(32)))


def test_several_free_dimensions_are_taken_from_the_request(connection: Connection) -> None:
    values = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    tensor = Tensor("INPUT0", "FP32", values.shape, raw=values.tobytes())
    response = ask(connection, Infer("image", [tensor], [Output("OUTPUT0", binary=True)]))
    assert response.infer_json["outputs"][0]["shape"] == [2, 3, 4, 5]
    assert response.binary == values.tobytes()


@pytest.mark.parametrize(
    ("given", "expected"),
    [((), 1101), (("INPUT1",), 1003), (("INPUT2",), 103), (("INPUT1", "INPUT2"), 5)],
    ids=["none given", "first given", "second given", "both given"],
)
def test_an_optional_input_left_out_takes_the_default_of_the_file(
    connection: Connection, given: tuple[str, ...], expected: int
) -> None:
    tensors = [Tensor("INPUT0", "INT32", (1,), values=[1])]
    tensors += [Tensor(name, "INT32", (1,), values=[2]) for name in given]
    assert ask(connection, Infer("optional", tensors)).json()["outputs"][0]["data"] == [expected]


@pytest.mark.parametrize(
    ("model", "version", "answered"),
    [
        ("specific_versions", "", 3),
        ("specific_versions", "1", 1),
        ("latest_versions", "", 3),
        ("latest_versions", "2", 2),
        ("all_versions", "1", 1),
        ("all_versions", "", 3),
        ("all_versions", "003", 3),
    ],
)
def test_the_version_asked_for_answers_and_the_latest_without_one(
    connection: Connection, model: str, version: str, answered: int
) -> None:
    response = ask(connection, Infer(model, [Tensor("INPUT0", "INT32", (1, 1), values=[10])], version=version)).json()
    assert (response["model_version"], response["outputs"][0]["data"]) == (str(answered), [10 + answered])


@pytest.mark.parametrize(
    "values",
    [[b"a", b"bc"], [b"", b""], [b"null \0 within", b"\0"], [b"\xff\xfe", b"\x80"], [b"x" * 100_000, b"y"]],
    ids=["short", "empty", "null characters", "no UTF-8", "long"],
)
def test_binary_strings_come_back_byte_for_byte(connection: Connection, values: list[bytes]) -> None:
    tensor = Tensor("INPUT0", "BYTES", (1, 2), raw=strings(*values))
    response = ask(connection, Infer("identity_bytes", [tensor], [Output("OUTPUT0", binary=True)]))
    assert response.binary == strings(*values)


@pytest.mark.parametrize(
    "value", ["plain", "", 'quote " back \\ slash /', "\b\f\n\r\t", "\0 and \x1f", "\x7f", "ü€😀", "</script>"]
)
def test_json_strings_come_back_character_for_character(connection: Connection, value: str) -> None:
    tensor = Tensor("INPUT0", "BYTES", (1, 2), values=[value, "end"])
    response = ask(connection, Infer("identity_bytes", [tensor]))
    assert response.json()["outputs"][0]["data"] == [value, "end"]


def test_strings_are_escaped_as_little_as_json_allows(connection: Connection) -> None:
    text = '"a\\u0000\\u001f\x7f/\\b\\f\\n\\r\\t\\"\\\\é"'
    response = ask_text(connection, "identity_bytes", identity_text("BYTES", f"[{text}]", "[1,1]"))
    assert '"data":["a\\u0000\\u001F\x7f/\\b\\f\\n\\r\\t\\"\\\\é"]'.encode() in response.body


@pytest.mark.parametrize(("datatype", "ones"), [("FP16", b"\x00\x3c"), ("BF16", b"\x80\x3f")])
def test_an_output_of_half_precision_comes_as_bytes_for_numbers_in_json(
    connection: Connection, datatype: str, ones: bytes
) -> None:
    tensor = Tensor("INPUT0", "FP32", (1, 3), values=[1.0] * 3)
    response = ask(connection, Infer(f"fp32_to_{datatype.lower()}", [tensor], [Output("OUTPUT0", binary=True)]))
    assert response.infer_json["outputs"][0]["datatype"] == datatype
    assert response.binary == ones * 3


def test_an_engine_that_fails_is_an_error_of_the_server_and_the_next_request_is_served(connection: Connection) -> None:
    def gather(index: int) -> Response:
        headers, body = requests.body(Infer("gather", [Tensor("INDEX", "INT64", (1, 1), values=[index])]))
        return connection.ask("POST", requests.path("gather"), headers, body)

    failed = gather(99)
    assert failed.status == 500
    assert failed.error.startswith("onnx runtime error 2: ")
    assert "idx=99" in failed.error
    assert gather(7).json()["outputs"][0]["data"] == [49]
