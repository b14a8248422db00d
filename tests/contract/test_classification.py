"""Outputs as their best classes, and the labels that a model has for them."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tritonclient import http
from tritonclient.http import aio

from runners import Engine, EngineOptions, InvalidInput, LogOptions
from tests import models
from tests.contract import transports
from tests.contract.requests import HEADER_LENGTH, Infer, Output, Tensor
from tests.contract.ways import WAYS, door
from tests.serving import Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.raw_http import Response

LABELS = "first\n\nthird\n"


def classifier(repository: Path, name: str, label_file: str, batch: int = 8) -> None:
    """A model that answers its scores; its output has labels."""
    shape: list[int | str] = ["batch", "n"] if batch else ["n"]
    text = models.config(
        name,
        [("INPUT0", "FP32", [-1])],
        [("OUTPUT0", "FP32", [-1])],
        max_batch_size=batch,
        fields={"OUTPUT0": f'label_filename: "{label_file}"'},
    )
    models.write(repository, name, models.identity("FP32", shape), text)


@pytest.fixture(scope="module")
def labelled_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labelled") / "models"
    for name, batch in (("batched", 8), ("flat", 0)):
        classifier(folder, name, "labels.txt", batch)
        (folder / name / "labels.txt").write_text(LABELS)
    return folder


@pytest.fixture(scope="module")
def labelled_server(labelled_repository: Path) -> Iterator[Server]:
    folder = labelled_repository.parent
    server = Server.start(labelled_repository, f"--http-socket={folder / 'http'}")
    server.http_socket = str(folder / "http")
    try:
        yield server
    finally:
        server.stop()


def scores(model: str, rows: list[list[float]], output: Output) -> Infer:
    shape = (len(rows), len(rows[0])) if model == "batched" else (len(rows[0]),)
    raw = b"".join(struct.pack(f"<{len(row)}f", *row) for row in rows)
    return Infer(model, [Tensor("INPUT0", "FP32", shape, raw=raw)], [output])


def shown(response: Response) -> tuple[str, list[int], list[str]]:
    """Data type, shape and texts of the first output, in JSON or in bytes."""
    assert response.status == 200, response.body
    if response.header(HEADER_LENGTH.lower()) is None:
        entry = response.json()["outputs"][0]
        return entry["datatype"], entry["shape"], entry["data"]
    entry = response.infer_json["outputs"][0]
    assert entry["parameters"] == {"binary_data_size": len(response.binary)}
    texts, rest = [], response.binary
    while rest:
        (length,) = struct.unpack_from("<I", rest)
        texts.append(rest[4 : 4 + length].decode())
        rest = rest[4 + length :]
    return entry["datatype"], entry["shape"], texts


@pytest.mark.parametrize("way", transports.RAW)
@pytest.mark.parametrize("binary", [False, True])
def test_each_row_of_a_batch_has_its_best_classes_with_their_labels(
    labelled_server: Server, way: str, binary: bool
) -> None:
    rows = [[1.0, 3.0, 2.0, 0.5], [6.25, 5.0, 4.0, 7.0]]
    request = scores("batched", rows, Output("OUTPUT0", binary, classes=2))
    answer = shown(transports.raw_infer(labelled_server, way, request))
    assert answer == ("BYTES", [2, 2], ["3.000000:1", "2.000000:2:third", "7.000000:3", "6.250000:0:first"])


@pytest.mark.parametrize("binary", [False, True])
def test_a_model_that_does_not_batch_has_the_best_classes_of_the_whole(labelled_server: Server, binary: bool) -> None:
    request = scores("flat", [[1.0, 3.0, 2.0]], Output("OUTPUT0", binary, classes=1))
    assert shown(transports.raw_infer(labelled_server, "tcp", request)) == ("BYTES", [1], ["3.000000:1"])


def test_more_classes_than_there_are_is_all_of_them_and_none_is_the_tensor(labelled_server: Server) -> None:
    def ask(classes: int) -> tuple[str, list[int], list[Any]]:
        request = scores("batched", [[1.0, 2.0]], Output("OUTPUT0", classes=classes))
        return shown(transports.raw_infer(labelled_server, "tcp", request))

    every = ("BYTES", [1, 2], ["2.000000:1", "1.000000:0:first"])
    assert ask(3) == ask(2**32) == ask(2**64 - 1) == every
    assert ask(0) == ("FP32", [1, 2], [1.0, 2.0])


def test_equal_scores_keep_their_order_and_what_is_no_number_comes_last(labelled_server: Server) -> None:
    values = [float("nan"), 1.0, float("-inf"), 1.0, float("inf"), *[0.0] * 20]
    request = scores("flat", [values], Output("OUTPUT0", classes=30))
    _, shape, texts = shown(transports.raw_infer(labelled_server, "tcp", request))
    zeros = [f"0.000000:{index}" for index in range(5, 25)]
    assert shape == [25]
    assert texts == ["inf:4", "1.000000:1", "1.000000:3", *zeros, "-inf:2:third", "nan:0:first"]


def test_an_empty_tensor_has_no_classes(labelled_server: Server) -> None:
    request = scores("batched", [[]], Output("OUTPUT0", classes=2))
    assert shown(transports.raw_infer(labelled_server, "tcp", request)) == ("BYTES", [1, 0], [])


@pytest.mark.parametrize("datatype", ["UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"])
def test_integers_are_printed_as_such(server: Server, datatype: str) -> None:
    dtype = np.dtype(datatype.lower())
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    raw = np.array([7, least, most], dtype).tobytes()
    request = Infer(
        f"identity_{datatype.lower()}", [Tensor("INPUT0", datatype, (1, 3), raw=raw)], [Output("OUTPUT0", classes=3)]
    )
    assert shown(transports.raw_infer(server, "tcp", request))[2] == [f"{most}:2", "7:0", f"{least}:1"]


def test_doubles_are_printed_with_six_places(server: Server) -> None:
    raw = struct.pack("<3d", 0.1, 1e-7, -12345678.9)
    request = Infer("identity_fp64", [Tensor("INPUT0", "FP64", (1, 3), raw=raw)], [Output("OUTPUT0", classes=3)])
    assert shown(transports.raw_infer(server, "tcp", request))[2] == ["0.100000:0", "0.000000:1", "-12345678.900000:2"]


def test_other_outputs_of_the_request_come_as_they_are(server: Server) -> None:
    row = struct.pack("<16i", *range(16))
    inputs = [Tensor(name, "INT32", (1, 16), raw=row) for name in ("INPUT0", "INPUT1")]
    request = Infer("add_sub", inputs, [Output("OUTPUT1"), Output("OUTPUT0", classes=1)])
    entries = transports.raw_infer(server, "tcp", request).json()["outputs"]
    assert [(entry["name"], entry["shape"], entry["data"]) for entry in entries] == [
        ("OUTPUT0", [1, 1], ["30:15"]),
        ("OUTPUT1", [1, 16], [0] * 16),
    ]


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("way", transports.CLIENTS)
def test_tritonclient_asks_for_classes(labelled_server: Server, way: str, binary: bool) -> None:
    request = scores("batched", [[1.0, 3.0, 2.0]], Output("OUTPUT0", binary, classes=2))
    inputs, outputs = transports.tensors(request.inputs), transports.requested(request.outputs)
    address = f"{labelled_server.http[0]}:{labelled_server.http[1]}"

    async def ask_async() -> Any:  # noqa: ANN401 - a tritonclient result
        async with aio.InferenceServerClient(address) as client:
            return await client.infer("batched", inputs, outputs=outputs)

    if way == "aio":
        result = asyncio.run(ask_async())
    else:
        with http.InferenceServerClient(address) as client:
            result = client.infer("batched", inputs, outputs=outputs)
    expected = [["3.000000:1", "2.000000:2:third"]]
    assert np.char.decode(result.as_numpy("OUTPUT0").astype(np.bytes_)).tolist() == expected


@pytest.mark.parametrize("way", WAYS)
def test_a_python_program_has_the_classes_with_their_labels(
    labelled_repository: Path, tmp_path: Path, way: str
) -> None:
    rows = np.array([[1, 3, 2, 0.5], [6.25, 5, 4, 7]], np.float32)
    options = EngineOptions(log=LogOptions(info=False))
    with Engine(labelled_repository, options=options) as engine, door(engine, way, tmp_path) as calls:
        batched = calls.batched.run(rows, outputs={"OUTPUT0": 2})
        flat = calls.flat.run(rows[0], outputs={"OUTPUT0": 1})
        with pytest.raises(InvalidInput, match=r"^classification output tensor too large$"):
            calls.flat.run(np.zeros(1_000_001, np.float32), outputs={"OUTPUT0": 1})
        assert flat["OUTPUT0"].tolist() == [b"3.000000:1"]
    assert batched["OUTPUT0"].tolist() == [
        [b"3.000000:1", b"2.000000:2:third"],
        [b"7.000000:3", b"6.250000:0:first"],
    ]
    assert batched.tensor("OUTPUT0").datatype == "BYTES"


@pytest.mark.parametrize(
    ("label_file", "reason"),
    [
        ("missing.txt", "failed to open text file for read {folder}/missing.txt: No such file or directory"),
        ("1", "failed to open text file for read {folder}/1: Is a directory"),
        (
            "../out.txt",
            "label file path '{folder}/../out.txt' for output 'OUTPUT0' in model 'm' is outside model directory",
        ),
        (
            "1/../../out.txt",
            "label file path '{folder}/1/../../out.txt' for output 'OUTPUT0' in model 'm' is outside model directory",
        ),
    ],
)
def test_a_label_file_that_cannot_be_read_or_lies_elsewhere_fails_the_load(
    start_server: StartServer, repository: Path, label_file: str, reason: str
) -> None:
    (repository / "out.txt").write_text(LABELS)
    classifier(repository, "m", label_file)
    server = start_server(repository, "--model-control-mode=explicit")
    response = server.post("/v2/repository/models/m/load", b"")
    text = reason.format(folder=repository / "m")
    where = repository / "m" / "config.pbtxt"
    assert (response.status, response.error) == (
        400,
        f"load failed for model 'm': version 1 is at UNAVAILABLE state: {where}: {text};\n",
    )
