"""A server that polls its repository, from outside."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tests import models
from tests.contract import requests
from tests.contract.requests import Infer, Tensor
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.serving import Server

POLL = ("--model-control-mode=poll", "--repository-poll-secs=1")
HEADERS, BODY = requests.body(Infer("m", [Tensor("INPUT0", "INT32", (1, 1), values=[0])]))


def write(repository: Path, name: str, constant: int) -> None:
    """Appears as a whole"""
    hidden = repository / f".{name}"
    models.write(repository, hidden.name, models.plus_constant(constant))
    shutil.rmtree(repository / name, ignore_errors=True)
    hidden.rename(repository / name)


def states(server: Server) -> dict[str, str]:
    rows = server.post("/v2/repository/index", b"").json()
    return {row["name"]: row.get("reason", "") or row.get("state", "") for row in rows}


def answers(server: Server, number: int) -> bool:
    response = server.post(requests.path("m"), BODY, HEADERS)
    return response.status == 200 and response.json()["outputs"][0]["data"] == [number]


def test_what_lies_in_the_repository_is_served(tmp_path: Path, start_server: StartServer) -> None:
    write(tmp_path, "m", 1)
    server = start_server(tmp_path, *POLL)
    assert answers(server, 1)
    write(tmp_path, "m", 2)
    write(tmp_path, "n", 3)
    eventually(lambda: answers(server, 2) and states(server) == {"m": "READY", "n": "READY"}, "all is served")
    shutil.rmtree(tmp_path / "n")
    (tmp_path / "m" / "1" / "model.onnx").write_bytes(b"broken")
    eventually(lambda: "failed to load 'm' version 1" in server.log.text() and states(server) == {"m": "READY"}, "it")
    assert answers(server, 2)
    assert server.post("/v2/repository/models/m/load", b"").status == 503
    shutil.rmtree(tmp_path / "m")
    eventually(lambda: states(server) == {}, "nothing is served")
    assert server.post(requests.path("m"), BODY, HEADERS).status == 404
    assert server.is_ready()


def test_it_ends_while_models_change(tmp_path: Path, start_server: StartServer) -> None:
    models.write_slow(tmp_path)
    write(tmp_path, "m", 1)
    server = start_server(tmp_path, *POLL)
    for number in range(10):
        write(tmp_path, f"n{number}", number)
    eventually(lambda: "'n0' is new" in server.log.text(), "they are read")
    assert server.stop() == 0
