"""How requests find the versions of a model, over the doors of a server"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests import models
from tests.integration.grpc_doors import port_of
from tests.serving import labelled

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.serving import Server

EXPLICIT = ("--model-control-mode=explicit", "--load-model=m")
BOTH: Mapping[str, Any] = {
    "labels": {"stable": 1, "canary": 2},
    "weights": {"stable": 90, "canary": 10},
    "sticky": "x-user",
}


def write(repository: Path, versions: Mapping[str, Any] = BOTH) -> None:
    stated = f"parameters {{ key: 'kushi.versions' value {{ string_value: '{json.dumps(versions)}' }} }}"
    text = f'version_policy {{ all {{}} }} backend: "onnxruntime" max_batch_size: 8 {stated}'
    models.write(repository, "m", {number: models.plus_constant(number) for number in (1, 2)}, text)


@pytest.fixture
def server(tmp_path: Path, start_server: StartServer) -> Server:
    write(tmp_path)
    return start_server(tmp_path, *EXPLICIT)


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest, server: Server) -> Iterator[Any]:
    """NVIDIA's own, of either protocol"""
    if request.param == "http":
        module, url = tritonclient.http, server.url.removeprefix("http://")
    else:
        module, url = tritonclient.grpc, f"127.0.0.1:{port_of(server)}"
    with module.InferenceServerClient(url) as client:
        client.module = module
        yield client


def kushi(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "runners", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def ask(client: Any, **options: Any) -> tuple[int, str]:  # noqa: ANN401 - a client of either protocol, and its options
    """What the model adds, and the version that the answer names"""
    given = client.module.InferInput("INPUT0", [1, 1], "INT32")
    given.set_data_from_numpy(np.zeros((1, 1), np.int32))
    answer = client.infer("m", [given], **options)
    about = answer.get_response()
    version = about["model_version"] if isinstance(about, dict) else about.model_version
    return int(answer.as_numpy("OUTPUT0")[0, 0]), version


def test_requests_are_shared_out(client: Any, server: Server) -> None:  # noqa: ANN401 - as above
    found = Counter(ask(client) for _ in range(300))
    assert found.keys() == {(1, "1"), (2, "2")}
    assert abs(found[2, "2"] - 30) <= 3
    values = server.metrics()
    for version, count in ((1, found[1, "1"]), (2, found[2, "2"])):
        assert labelled(values, "nv_inference_request_success", model="m", version=str(version)) == count


def test_a_label_is_a_version(client: Any) -> None:  # noqa: ANN401 - as above
    assert ask(client, model_version="stable") == (1, "1")
    assert ask(client, model_version="canary") == (2, "2")
    assert client.is_model_ready("m", "canary")
    with pytest.raises(InferenceServerException, match="model 'm' has no version 'other': expected a number or one of"):
        ask(client, model_version="other")
    with pytest.raises(InferenceServerException, match=r"invalid model version specified '-1'|404"):
        ask(client, model_version="-1")


def test_headers_parameters_and_sequences_are_sticky(server: Server) -> None:
    with (
        tritonclient.http.InferenceServerClient(server.url.removeprefix("http://")) as http,
        tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{port_of(server)}") as grpc,
    ):
        http.module, grpc.module = tritonclient.http, tritonclient.grpc
        seen = set()
        for user in range(40):
            key = {"x-user": f"user {user}"}  # a client adds to the headers that it is given
            found = {ask(client, headers=dict(key)) for client in (http, grpc) for _ in range(2)}
            found |= {ask(client, parameters=key) for client in (http, grpc)}
            assert len(found) == 1
            seen |= found
            sequence = {"sequence_id": 1000 + user, "sequence_start": True}
            assert len({ask(client, **sequence) for client in (http, grpc) for _ in range(2)}) == 1
        assert seen == {(1, "1"), (2, "2")}


def test_a_load_changes_nothing_else(client: Any, server: Server) -> None:  # noqa: ANN401 - as above
    before = Counter(ask(client) for _ in range(20))
    body = {"parameters": {"kushi.versions": json.dumps({"promote": "canary", "keep": True})}}
    answer = server.post("/v2/repository/models/m/load", json.dumps(body).encode())
    assert answer.status == 200, answer.body
    assert "kushi.versions" in server.get("/v2/models/m/versions/1/config").json()["parameters"]
    assert {ask(client) for _ in range(20)} == {(2, "2")}
    counts = server.get("/v2/models/m/stats").json()["model_stats"]
    found = {row["version"]: row["inference_count"] for row in counts}
    assert found == {"1": before[1, "1"], "2": before[2, "2"] + 20}
    assert "loading: m:1" not in server.log.text().split("its versions are found by")[1]


def test_a_change_needs_leave(tmp_path: Path, start_server: StartServer) -> None:
    write(tmp_path)
    server = start_server(tmp_path)
    body = json.dumps({"parameters": {"kushi.versions": '{"promote": 2}'}}).encode()
    answer = server.post("/v2/repository/models/m/load", body)
    assert (answer.status, answer.json()) == (
        503,
        {"error": "explicit model load / unload is not allowed if polling is enabled"},
    )


def test_the_command_shows_and_changes_them(server: Server) -> None:
    def versions(*arguments: str) -> list[str]:
        ended = kushi("versions", "m", "--url", server.url, *arguments)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.splitlines()

    assert versions() == [
        "version  state  labels  share  requests",
        "1        READY  stable  90 %   0",
        "2        READY  canary  10 %   0",
        "requests with equal values of 'x-user' meet one version",
    ]
    assert versions("--weights", "stable=1,2=3", "--sticky", "")[1:] == [
        "1        READY  stable  25 %   0",
        "2        READY  canary  75 %   0",
    ]
    assert versions("--promote", "canary")[1:] == [
        "1        READY                  0 %    0",
        "2        READY  stable, canary  100 %  0",
    ]
    assert versions("--back")[1:] == [
        "1        READY  stable  25 %   0",
        "2        READY  canary  75 %   0",
    ]
    ended = kushi("versions", "m", "--url", server.url, "--weights", "other=1")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "a weight is for 'other', expected one of the labels" in ended.stderr


def test_a_start_with_wrong_versions_says_so(tmp_path: Path) -> None:
    write(tmp_path, {"labels": {"stable": 3}})
    ended = kushi("check", str(tmp_path))
    assert ended.returncode == 1
    assert "label 'stable' is for version 3, and the versions that are served are 1, 2" in ended.stdout + ended.stderr
