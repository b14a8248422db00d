"""The start of a server: what it prints, what it refuses, and how it names what is wrong."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import models
from tests.contract import requests
from tests.contract.requests import ADD_SUB_INPUTS, Infer, Tensor
from tests.raw_http import fetch
from tests.serving import free_port, run_to_end

if TYPE_CHECKING:
    from tests.conftest import StartServer

PORTS = ("--http-address=127.0.0.1", "--http-port=0", "--metrics-address=127.0.0.1", "--metrics-port=0")
HEADERS, BODY = requests.body(Infer("add_sub", ADD_SUB_INPUTS))
SUM = list(range(1, 17))

WHOLE = models.add_sub(["batch", 16]).SerializeToString()
CORRUPT = {
    "empty": b"",
    "text": b"this is no model",
    "cut": WHOLE[: len(WHOLE) // 2],
    "noise": bytes(range(256)) * 20,
}


def write_broken(repository: Path, content: bytes) -> None:
    inputs = [("INPUT0", "INT32", [16]), ("INPUT1", "INT32", [16])]
    outputs = [("OUTPUT0", "INT32", [16]), ("OUTPUT1", "INT32", [16])]
    models.write(repository, "broken", content, models.config("broken", inputs, outputs, max_batch_size=8))


def test_the_start_up_log_tells_where_and_what_is_served(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository)
    server = start_server(repository)
    server.log.wait_for(re.compile(r"ready in [\d.]+ s \([\d.]+ s after imports\)"), 30)
    text = server.log.text()
    assert f"Started HTTPService at 127.0.0.1:{server.http[1]}" in text
    assert f"Started Metrics Service at 127.0.0.1:{server.metrics_address[1]}" in text
    assert re.search(r"\|\s*Model\s*\|\s*Version\s*\|\s*Status\s*\|", text)
    assert re.search(r"\|\s*add_sub\s*\|\s*1\s*\|\s*READY\s*\|", text)


def test_an_empty_repository_is_served(repository: Path, start_server: StartServer) -> None:
    server = start_server(repository)
    assert server.get("/v2/models/stats").json() == {"model_stats": []}
    assert f"no model found in '{repository}', expected directories as in MODEL/1/model.onnx" in server.log.text()


@pytest.mark.parametrize("kind", CORRUPT)
def test_a_corrupt_model_fails_the_start_by_its_name(repository: Path, kind: str) -> None:
    write_broken(repository, CORRUPT[kind])
    models.write_add_sub(repository)
    ended = run_to_end(f"--model-repository={repository}", *PORTS)
    assert ended.returncode == 1
    assert "broken" in ended.stdout
    assert "model.onnx" in ended.stdout
    assert "Traceback" not in ended.stdout


@pytest.mark.parametrize("kind", CORRUPT)
def test_beside_a_corrupt_model_the_others_are_served_if_asked_for(
    repository: Path, start_server: StartServer, kind: str
) -> None:
    write_broken(repository, CORRUPT[kind])
    models.write_add_sub(repository)
    server = start_server(repository, "--exit-on-error=false", "--strict-readiness=false")
    assert server.post(requests.path("add_sub"), BODY, HEADERS).json()["outputs"][0]["data"] == SUM
    assert server.get("/v2/models/add_sub/ready").status == 200
    nothing = "Request for unknown model: 'broken' has no available versions"
    for answer in (server.post(requests.path("broken"), BODY, HEADERS), server.get("/v2/models/broken/ready")):
        assert (answer.status, answer.error) == (404, nothing)
    not_ready = "Request for unknown model: 'broken' version 1 is not at ready state"
    for answer in (
        server.post(requests.path("broken", "1"), BODY, HEADERS),
        server.get("/v2/models/broken/versions/1/ready"),
        server.get("/v2/models/broken/versions/1"),
    ):
        assert (answer.status, answer.error) == (503, not_ready)
    answer = server.get("/v2/models/broken/stats")
    assert (answer.status, answer.error) == (400, "requested model 'broken' is not available")
    assert re.search(r"\|\s*broken\s*\|\s*1\s*\|\s*UNAVAILABLE", server.log.text())


def test_strict_readiness_is_false_while_a_model_is_missing(repository: Path, start_server: StartServer) -> None:
    write_broken(repository, b"")
    models.write_add_sub(repository)
    server = start_server(repository, "--exit-on-error=false", ready=False)
    server.log.wait_for(re.compile(r"ready in "), 45)
    response = server.get("/v2/health/ready")
    assert (response.status, response.json()) == (400, {"ready": False})
    assert server.get("/v2/health/live").status == 200


def test_a_wrong_configuration_names_its_file_and_field(repository: Path) -> None:
    models.write(repository, "odd", models.identity("INT32"), 'name: "odd"\nmax_batch_size: "many"\n')
    ended = run_to_end(f"--model-repository={repository}", *PORTS)
    assert ended.returncode == 1
    assert "config.pbtxt" in ended.stdout
    assert "max_batch_size" in ended.stdout
    assert "Traceback" not in ended.stdout


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("sequence_batching { }", "sequence_batching"),
        ("instance_group [ { kind: KIND_GPU } ]", "KIND_GPU"),
    ],
)
def test_a_feature_that_does_not_exist_yet_is_refused_by_name(repository: Path, text: str, field: str) -> None:
    io = ([("INPUT0", "INT32", [-1])], [("OUTPUT0", "INT32", [-1])])
    models.write(repository, "odd", models.identity("INT32"), models.config("odd", *io, max_batch_size=4, extra=text))
    ended = run_to_end(f"--model-repository={repository}", *PORTS)
    assert ended.returncode == 1
    assert field in ended.stdout
    assert "odd" in ended.stdout


def test_a_configuration_that_the_file_contradicts_is_refused(repository: Path) -> None:
    io = ([("INPUT0", "FP32", [16])], [("OUTPUT0", "INT32", [16])])
    models.write(repository, "odd", models.identity("INT32"), models.config("odd", *io, max_batch_size=4))
    ended = run_to_end(f"--model-repository={repository}", *PORTS)
    assert ended.returncode == 1
    assert "INPUT0" in ended.stdout
    assert "odd" in ended.stdout


def test_a_corrupt_model_is_named_once_and_its_row_in_the_table_is_short(repository: Path) -> None:
    write_broken(repository, CORRUPT["text"])
    ended = run_to_end(f"--model-repository={repository}", *PORTS)
    path = repository / "broken" / "1" / "model.onnx"
    (line,) = (line for line in ended.stdout.splitlines() if "failed to load 'broken' version 1" in line)
    assert line.count(str(path)) == 1
    assert line.endswith(f"onnx model '{path}' cannot be loaded: Protobuf parsing failed.")
    rows = [row for row in ended.stdout.splitlines() if row.startswith("|") and str(path) not in row]
    assert max(map(len, rows)) <= max(80, len(str(path))) + 30


@pytest.mark.parametrize("switches", [["--allow-metrics=false"], []])
def test_a_server_without_a_door_for_requests_is_an_error(repository: Path, switches: list[str]) -> None:
    ended = run_to_end(f"--model-repository={repository}", "--allow-http=false", "--allow-grpc=false", *switches)
    assert ended.returncode == 2
    assert ended.stdout.startswith("kushi serve: error: nothing to serve: ")


@pytest.mark.parametrize("flag", ["--http-port", "--grpc-port", "--metrics-port"])
def test_a_port_in_use_is_an_error_before_anything_is_loaded(repository: Path, flag: str) -> None:
    models.write_add_sub(repository)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run_to_end(f"--model-repository={repository}", *PORTS, f"{flag}={port}")
    assert ended.returncode == 1
    assert f"Socket '127.0.0.1:{port}' already in use: choose another port, or stop what listens there" in ended.stdout
    assert "loading:" not in ended.stdout
    assert "Traceback" not in ended.stdout


def test_two_services_at_one_port_are_an_error_before_anything_is_loaded(repository: Path) -> None:
    models.write_add_sub(repository)
    port = free_port()
    ended = run_to_end(f"--model-repository={repository}", *PORTS, f"--http-port={port}", f"--metrics-port={port}")
    assert ended.returncode == 1
    place = f"127.0.0.1:{port}"
    assert f"failed to start Metrics service at {place}: another service of this server has the port" in ended.stdout
    assert "loading:" not in ended.stdout


def test_servers_share_a_port_when_each_asks_for_it(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository)
    first = start_server(repository, "--reuse-http-port")
    second = start_server(repository, "--reuse-http-port", f"--http-port={first.http[1]}")
    assert first.http == second.http
    ended = run_to_end(f"--model-repository={repository}", *PORTS, f"--http-port={first.http[1]}")
    assert ended.returncode == 1
    assert "already in use" in ended.stdout


def test_a_second_server_on_the_same_port_is_an_error(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository)
    server = start_server(repository)
    ended = run_to_end(f"--model-repository={repository}", *PORTS, f"--http-port={server.http[1]}")
    assert ended.returncode == 1
    assert "already in use" in ended.stdout.lower()
    assert server.is_ready()


def test_a_missing_repository_is_an_error(tmp_path: Path) -> None:
    ended = run_to_end(f"--model-repository={tmp_path / 'nowhere'}", *PORTS)
    assert ended.returncode == 1
    assert "nowhere" in ended.stdout
    assert "Traceback" not in ended.stdout


@pytest.mark.parametrize(
    "flag", ["--grpc-use-ssl", "--model-namespacing=true", "--cache-config=local,size=1", "--no-such-flag=1"]
)
def test_a_flag_without_a_feature_is_refused_by_name(repository: Path, flag: str) -> None:
    ended = run_to_end(f"--model-repository={repository}", *PORTS, flag)
    assert ended.returncode != 0
    assert flag.partition("=")[0] in ended.stdout
    assert "Traceback" not in ended.stdout


def test_grpc_may_be_switched_off(repository: Path, start_server: StartServer) -> None:
    assert start_server(repository, "--allow-grpc=false").is_ready()


def test_the_name_of_the_server_may_be_chosen(repository: Path, start_server: StartServer) -> None:
    assert start_server(repository, "--id=kushi-7").get("/v2").json()["name"] == "kushi-7"


def test_a_bare_file_is_served_under_its_stem(tmp_path: Path, start_server: StartServer) -> None:
    file = tmp_path / "sum.onnx"
    file.write_bytes(WHOLE)
    server = start_server(None, str(file))
    tensors = [Tensor(name, "INT32", (2, 16), values=[1] * 32) for name in ("INPUT0", "INPUT1")]
    headers, body = requests.body(Infer("sum", tensors))
    assert server.post(requests.path("sum"), body, headers).json()["outputs"][0]["data"] == [2] * 32
    assert server.get("/v2/models/sum").json()["versions"] == ["1"]


def test_a_unix_socket_serves_the_same_protocol(repository: Path, start_server: StartServer, tmp_path: Path) -> None:
    models.write_add_sub(repository)
    path = str(tmp_path / "kushi.sock")
    server = start_server(repository, f"--http-socket={path}")
    assert fetch(path, "GET", "/v2/health/ready").status == 200
    response = fetch(path, "POST", requests.path("add_sub"), HEADERS, BODY)
    assert response.json()["outputs"][0]["data"] == SUM
    assert server.stop() == 0
    assert not Path(path).exists()


def test_a_unix_socket_left_behind_is_taken_over_and_a_living_one_is_not(
    repository: Path, start_server: StartServer, tmp_path: Path
) -> None:
    path = str(tmp_path / "kushi.sock")
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(path)
    models.write_add_sub(repository)
    start_server(repository, f"--http-socket={path}")
    assert fetch(path, "GET", "/v2/health/live").status == 200
    ended = run_to_end(f"--model-repository={repository}", *PORTS, f"--http-socket={path}")
    assert ended.returncode == 1
    assert f"Socket '{path}' already in use" in ended.stdout
    assert "loading:" not in ended.stdout
    assert fetch(path, "GET", "/v2/health/live").status == 200


def test_a_file_in_place_of_the_unix_socket_is_left_alone(repository: Path, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.write_text("precious")
    ended = run_to_end(f"--model-repository={repository}", *PORTS, f"--http-socket={file}")
    assert ended.returncode == 1
    assert f"cannot listen on the socket {file}: it exists and is not a socket" in ended.stdout
    assert file.read_text() == "precious"


def test_two_servers_run_beside_each_other(
    repository: Path, standard_repository: Path, start_server: StartServer
) -> None:
    models.write_add_sub(repository)
    first, second = start_server(repository), start_server(repository)
    assert first.http != second.http
    for server in (first, second):
        assert server.post(requests.path("add_sub"), BODY, HEADERS).status == 200
