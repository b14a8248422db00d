"""PyTorch models that take all that they are given: what they do is the failure of their own load."""

from __future__ import annotations

import json
import re
import zipfile
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

from tests import models
from tests.bystander import undisturbed
from tests.raw_http import frame
from tests.torch.models import export, model_config, put
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.serving import Server

EXPLICIT = ("--model-control-mode=explicit", "--load-model=add_sub", "--model-load-thread-count=1")
LOAD = "/v2/repository/models/{}/load"
UNLOAD = "/v2/repository/models/{}/unload"
ONE = [("x", "FP32", [4])], [("o", "FP32", [4])]


class Endless(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        while bool((x < 1).all()):
            x = x * 1
        return x


class Divided(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.div(x[:, 0], x[:, 1], rounding_mode="trunc")[:, None]


class Remainder(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        left, right = int(x[0, 0].item()), int(x[0, 1].item())
        return torch.tensor([[left % right]])


class Plain(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


def states(server: Server, name: str) -> list[str]:
    return [row.get("state", "") for row in server.post("/v2/repository/index", b"").json() if row["name"] == name]


def test_a_script_that_never_ends_is_given_up_by_an_unload(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository)
    put(repository, "endless", Endless(), model_config("endless", *ONE, max_batch_size=4))
    put(repository, "plain", Plain(), model_config("plain", *ONE, max_batch_size=4))
    server = start_server(repository, *EXPLICIT)
    assert server.post(LOAD.format("plain"), b"").status == 200
    with undisturbed(server) as bystander, server.connect() as loading:
        loading.send(frame("POST", LOAD.format("endless")))
        eventually(lambda: states(server, "endless") == ["LOADING"], "the load goes on")
        bystander.is_still_answered()
        assert server.post(UNLOAD.format("endless"), b"").status == 200
        assert "given up" in loading.receive().error
        # of the same framework, by the thread that the other load had
        assert server.post(LOAD.format("plain"), b"").status == 200
        body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0, 1, 2, 3]}]})
        answer = server.post("/v2/models/plain/infer", body.encode())
        assert answer.json()["outputs"][0]["data"] == [1, 2, 3, 4]
    assert server.is_ready()
    assert server.stop() == 0


def test_the_least_whole_number_by_minus_one_has_a_result(repository: Path, start_server: StartServer) -> None:
    tensors = [("x", "INT64", [2])], [("o", "INT64", [1])]
    put(repository, "divided", Divided(), model_config("divided", *tensors, max_batch_size=4))
    server = start_server(repository)
    least = -(2**63)
    body = {"inputs": [{"name": "x", "datatype": "INT64", "shape": [2, 2], "data": [least, -1, 7, 2]}]}
    answer = server.post("/v2/models/divided/infer", json.dumps(body).encode())
    assert answer.json()["outputs"][0]["data"] == [least, 3]
    assert server.is_ready()


@pytest.mark.parametrize("isolate", ["false", "true"])
def test_a_remainder_by_zero_ends_no_process(repository: Path, start_server: StartServer, isolate: str) -> None:
    """TorchScript divides whole numbers without a look at them, while the model is tried as well"""
    extra = f'parameters {{ key: "kushi.isolate" value {{ string_value: "{isolate}" }} }}'
    tensors = [("x", "INT64", [2])], [("o", "INT64", [1])]
    put(repository, "rest", Remainder(), model_config("rest", *tensors, extra=extra, max_batch_size=1))
    server = start_server(repository)
    for left, right, rest in ((7, 0, 7), (7, 2, 1), (-(2**63), -1, 0)):
        body = {"inputs": [{"name": "x", "datatype": "INT64", "shape": [1, 2], "data": [left, right]}]}
        answer = server.post("/v2/models/rest/infer", json.dumps(body).encode())
        assert answer.json()["outputs"][0]["data"] == [rest], (left, right)
    assert not any("has ended" in line for line in server.log.lines)


def test_rows_too_large_to_allocate_are_not_tried(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository)
    put(repository, "m", Plain(), model_config("m", [("x", "FP32", [1 << 36])], [("o", "FP32", [-1])]))
    server = start_server(repository, *EXPLICIT)
    with undisturbed(server):
        assert server.post(LOAD.format("m"), b"").status == 200
        server.log.wait_for(re.compile("at most 16777216 are tried"), 10)


def test_a_program_whose_texts_would_run_is_refused_and_runs_nothing(
    repository: Path, start_server: StartServer, tmp_path: Path
) -> None:
    models.write_add_sub(repository)
    path = put(repository, "m", export(Plain(), (torch.zeros(2, 4),))) / "1/model.pt2"
    with zipfile.ZipFile(path) as archive:
        records = {record.filename: archive.read(record) for record in archive.infolist()}
    (model,) = (name for name in records if name.endswith("models/model.json"))
    whole = records[model].decode()
    runs = f"__import__('os').mkdir('{tmp_path}/ran')"
    program = json.loads(whole)
    server = start_server(repository, *EXPLICIT)
    for text, record in (
        (json.dumps(program | {"guards_code": [runs]}), None),
        # a guard stands in the message of its own failure, too
        (
            json.dumps(program | {"guards_code": ["""'"); RUNS #' == 'x'""".replace("RUNS", runs.replace("'", '"'))]}),
            None,
        ),
        (whole.replace('"x"', json.dumps(f"x={runs}")), None),
        (whole, "data/weights/model.pt"),
    ):
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in (records | {model: text.encode()}).items():
                archive.writestr(name, content)
            if record:
                archive.writestr(model.replace("models/model.json", record), b"")
        with undisturbed(server):
            refused = server.post(LOAD.format("m"), b"")
        assert "which is not read here" in refused.error
        assert refused.status == 400
    assert not (tmp_path / "ran").exists()


def test_a_size_that_would_take_for_ever_is_refused_at_once(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository)
    path = put(repository, "m", export(Plain(), (torch.zeros(2, 4),))) / "1/model.pt2"
    with zipfile.ZipFile(path) as archive:
        records = {record.filename: archive.read(record) for record in archive.infolist()}
    (model,) = (name for name in records if name.endswith("models/model.json"))
    assert b'"expr_str": "Symbol(' in records[model]
    text = records[model].decode()
    start = text.index('"expr_str": "') + len('"expr_str": "')
    records[model] = (text[:start] + "9**9**9**9" + text[text.index('"', start) :]).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in records.items():
            archive.writestr(name, content)
    server = start_server(repository, *EXPLICIT)
    with undisturbed(server):
        refused = server.post(LOAD.format("m"), b"")
        assert (refused.status, "no arithmetic of small numbers" in refused.error) == (400, True), refused
