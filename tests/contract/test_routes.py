"""Paths, verbs, health, metadata, configuration and statistics, as bytes on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runners import __version__

if TYPE_CHECKING:
    from tests.raw_http import Connection
    from tests.serving import Server

READ_PATHS = [
    "/v2",
    "/v2/health/live",
    "/v2/health/ready",
    "/v2/models/stats",
    "/v2/models/add_sub",
    "/v2/models/add_sub/ready",
    "/v2/models/add_sub/config",
    "/v2/models/add_sub/stats",
    "/v2/models/add_sub/versions/1",
    "/v2/models/add_sub/versions/1/ready",
    "/v2/models/add_sub/versions/1/config",
    "/v2/models/add_sub/versions/1/stats",
]
WRITE_PATHS = [
    "/v2/models/add_sub/infer",
    "/v2/models/add_sub/versions/1/infer",
    "/v2/models/missing/infer",
    "/v2/models/add_sub/generate",
    "/v2/models/add_sub/generate_stream",
    "/v2/models/add_sub/versions/1/generate",
    "/v2/models/add_sub/versions/1/generate_stream",
    "/v2/repository/index",
    "/v2/repository/models/add_sub/load",
    "/v2/repository/models/add_sub/unload",
    "/v2/repository/other/index",
    "/v2/repository/other/models/add_sub/load",
    "/v2/repository/other/models/add_sub/unload",
]
UNKNOWN_PATHS = [
    "/",
    "/v1",
    "/v2/",
    "/v3",
    "/v2/health",
    "/v2/health/",
    "/v2/health/alive",
    "/v2/health/ready/",
    "/v2/models",
    "/v2/models/",
    "/v2/models//ready",
    "/v2/models/add_sub/",
    "/v2/models/add_sub/versions",
    "/v2/models/add_sub/versions/",
    "/v2/models/add_sub/versions/abc",
    "/v2/models/add_sub/versions/abc/infer",
    "/v2/models/add_sub/versions/-1/infer",
    "/v2/models/add_sub/versions/1/",
    "/v2/models/add_sub/versions/1.0/infer",
    "/v2/models/add_sub/explode",
    "/v2/models/add_sub/infer/",
    "/v2/models/add_sub/infer/now",
    "/v2/models/a/b/infer",
    "/v2/models/add_sub/trace",
    "/v2/models/add_sub/versions/1/trace/setting",
    "/v2/logging/",
    "/v2/trace",
    "/v2/trace/settings",
    "/v2//models/add_sub",
    "/v2/repository",
    "/v2/repository/",
    "/v2/repository/index/",
    "/v2/repository/models/add_sub",
    "/v2/repository/models/add_sub/reload",
    "/v2/repository/models//load",
    "/v2/repository/a/b/index",
    "/metrics/",
    "/favicon.ico",
]
SETTING_PATHS = ["/v2/logging", "/v2/trace/setting", "/v2/models/add_sub/trace/setting"]
NO_SUCH_MODEL = "Request for unknown model: 'missing' is not found"
NO_SUCH_VERSION = "Request for unknown model: 'add_sub' version 7 is not found"


@pytest.mark.parametrize("path", UNKNOWN_PATHS)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unknown_path_is_not_found(connection: Connection, method: str, path: str) -> None:
    response = connection.ask(method, path)
    assert (response.status, response.body) == (404, b'{"error":"Not Found"}')


@pytest.mark.parametrize("path", READ_PATHS)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_what_is_read_refuses_other_verbs(connection: Connection, method: str, path: str) -> None:
    response = connection.ask(method, path)
    assert (response.status, response.body) == (405, b'{"error":"Method Not Allowed"}')


@pytest.mark.parametrize("path", WRITE_PATHS)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_infer_refuses_other_verbs_before_it_looks_for_the_model(
    connection: Connection, method: str, path: str
) -> None:
    response = connection.ask(method, path)
    assert (response.status, response.body) == (405, b'{"error":"Method Not Allowed"}')


@pytest.mark.parametrize("path", SETTING_PATHS)
@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_settings_are_read_and_written_and_nothing_else(connection: Connection, method: str, path: str) -> None:
    response = connection.ask(method, path)
    assert (response.status, response.body) == (405, b'{"error":"Method Not Allowed"}')


@pytest.mark.parametrize(
    ("paths", "allowed"),
    [(READ_PATHS, "GET"), (WRITE_PATHS, "POST"), (SETTING_PATHS, "GET, POST")],
    ids=["read", "write", "settings"],
)
def test_a_refused_verb_is_told_the_right_one(connection: Connection, paths: list[str], allowed: str) -> None:
    for path in paths:
        assert connection.ask("PUT", path).header("allow") == allowed


@pytest.mark.parametrize("path", [*READ_PATHS, *WRITE_PATHS, *SETTING_PATHS])
def test_head_is_a_wrong_verb_and_its_answer_has_no_body(connection: Connection, path: str) -> None:
    response = connection.ask("HEAD", path)
    assert (response.status, response.body) == (405, b"")
    assert connection.ask("GET", "/v2/health/live").status == 200


@pytest.mark.parametrize("path", READ_PATHS)
def test_a_query_string_does_not_change_the_path(connection: Connection, path: str) -> None:
    assert connection.ask("GET", f"{path}?verbose=1&x=/y").status == 200


@pytest.mark.parametrize("kind", ["live", "ready"])
def test_health_answers_200_and_says_it_in_the_body_as_well(connection: Connection, kind: str) -> None:
    response = connection.ask("GET", f"/v2/health/{kind}")
    assert (response.status, response.json()) == (200, {kind: True})
    assert response.header("content-type") == "application/json"


@pytest.mark.parametrize("path", ["/v2/models/add_sub/ready", "/v2/models/add_sub/versions/1/ready"])
def test_a_ready_model_answers_200_and_its_name(connection: Connection, path: str) -> None:
    response = connection.ask("GET", path)
    assert (response.status, response.json()) == (200, {"name": "add_sub", "ready": True})


def test_the_server_describes_itself(connection: Connection) -> None:
    response = connection.ask("GET", "/v2")
    document = response.json()
    assert list(document) == ["name", "version", "extensions"]
    assert document["name"] == "triton"
    assert document["version"] == __version__
    assert {
        "binary_tensor_data",
        "parameters",
        "statistics",
        "schedule_policy",
        "classification",
        "trace",
        "logging",
        "model_configuration",
        "model_repository",
    } <= set(document["extensions"])
    assert not {"sequence", "cuda_shared_memory"} & set(document["extensions"])
    assert response.header("content-type") == "application/json"


@pytest.mark.parametrize(
    ("extension", "method", "path"),
    [
        ("model_configuration", "GET", "/v2/models/add_sub/config"),
        ("model_repository", "POST", "/v2/repository/index"),
        ("statistics", "GET", "/v2/models/stats"),
        ("trace", "GET", "/v2/trace/setting"),
        ("trace", "GET", "/v2/models/add_sub/trace/setting"),
        ("logging", "GET", "/v2/logging"),
    ],
)
def test_the_routes_of_an_extension_that_is_listed_answer(
    connection: Connection, extension: str, method: str, path: str
) -> None:
    assert extension in connection.ask("GET", "/v2").json()["extensions"]
    assert connection.ask(method, path).status == 200


def test_a_model_describes_itself_with_its_batch_dimension(connection: Connection) -> None:
    response = connection.ask("GET", "/v2/models/add_sub")
    assert response.body == (
        b'{"name":"add_sub","versions":["1"],"platform":"onnxruntime_onnx",'
        b'"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[-1,16]},'
        b'{"name":"INPUT1","datatype":"INT32","shape":[-1,16]}],'
        b'"outputs":[{"name":"OUTPUT0","datatype":"INT32","shape":[-1,16]},'
        b'{"name":"OUTPUT1","datatype":"INT32","shape":[-1,16]}]}'
    )
    assert response.header("content-type") == "application/json"


@pytest.mark.parametrize(
    ("model", "shapes"),
    [
        ("add_sub_flat", ([16], [16])),
        ("scalar", ([1], [1])),
        ("scalar_batched", ([-1, 1], [-1, 1])),
        ("reshaped", ([-1, 2, 8], [-1, 4, 4])),
        ("image", ([-1, 3, -1, -1], [-1, 3, -1, -1])),
        ("nonzero", ([-1], [1, -1])),
        ("completed_fixed", ([2, 3], [2, 3])),
    ],
)
def test_a_model_shows_the_shapes_of_its_configuration(
    connection: Connection, model: str, shapes: tuple[list[int], list[int]]
) -> None:
    document = connection.ask("GET", f"/v2/models/{model}").json()
    assert (document["inputs"][0]["shape"], document["outputs"][0]["shape"]) == shapes


def test_a_model_without_configuration_is_completed_from_its_file(connection: Connection) -> None:
    document = connection.ask("GET", "/v2/models/completed").json()
    assert document["inputs"][0] == {"name": "INPUT0", "datatype": "FP32", "shape": [-1, 16]}
    assert connection.ask("GET", "/v2/models/completed/config").json()["max_batch_size"] == 4


@pytest.mark.parametrize("datatype", ["BYTES", "BF16", "FP16", "BOOL", "UINT64"])
def test_datatypes_have_the_names_of_the_protocol(connection: Connection, datatype: str) -> None:
    document = connection.ask("GET", f"/v2/models/identity_{datatype.lower()}").json()
    assert document["inputs"][0]["datatype"] == datatype


@pytest.mark.parametrize(
    ("path", "versions"),
    [
        ("/v2/models/specific_versions", ["1", "3"]),
        ("/v2/models/specific_versions/versions/3", ["3"]),
        ("/v2/models/latest_versions", ["2", "3"]),
        ("/v2/models/all_versions", ["1", "2", "3"]),
    ],
)
def test_a_model_lists_the_versions_that_its_policy_serves(
    connection: Connection, path: str, versions: list[str]
) -> None:
    assert connection.ask("GET", path).json()["versions"] == versions


@pytest.mark.parametrize("kind", ["", "/ready", "/config"])
def test_an_unknown_model_is_not_found(connection: Connection, kind: str) -> None:
    response = connection.ask("GET", f"/v2/models/missing{kind}")
    assert (response.status, response.error) == (404, NO_SUCH_MODEL)


@pytest.mark.parametrize("kind", ["", "/ready", "/config"])
def test_an_unknown_version_is_not_found(connection: Connection, kind: str) -> None:
    response = connection.ask("GET", f"/v2/models/add_sub/versions/7{kind}")
    assert (response.status, response.error) == (404, NO_SUCH_VERSION)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/v2/models/missing/stats", "requested model 'missing' is not available"),
        ("/v2/models/missing/versions/1/stats", "requested model 'missing' is not available"),
        ("/v2/models/add_sub/versions/7/stats", "requested model version is not available for model 'add_sub'"),
    ],
)
def test_statistics_of_what_is_not_served_are_refused(connection: Connection, path: str, text: str) -> None:
    response = connection.ask("GET", path)
    assert (response.status, response.error) == (400, text)


def test_the_configuration_is_complete_and_its_large_integers_are_numbers(connection: Connection) -> None:
    response = connection.ask("GET", "/v2/models/add_sub/config")
    assert response.header("content-type") == "application/json"
    document = response.json()
    assert document["name"] == "add_sub"
    assert document["platform"] == "onnxruntime_onnx"
    assert document["backend"] == "onnxruntime"
    assert document["max_batch_size"] == 8
    assert document["input"][0]["name"] == "INPUT0"
    assert document["input"][0]["data_type"] == "TYPE_INT32"
    assert document["input"][0]["dims"] == [16]
    assert document["output"][1]["dims"] == [16]
    assert document["version_policy"] == {"latest": {"num_versions": 1}}
    assert document["dynamic_batching"]["preferred_batch_size"] == [8]
    assert document["dynamic_batching"]["max_queue_delay_microseconds"] == 0
    assert document["default_model_filename"] == "model.onnx"
    assert [(group["kind"], group["count"]) for group in document["instance_group"]] == [("KIND_CPU", 2)]
    assert document["instance_group"][0]["name"] == "add_sub"


def test_the_configuration_keeps_what_the_user_wrote(connection: Connection) -> None:
    document = connection.ask("GET", "/v2/models/slow/config").json()
    assert document["parameters"]["intra_op_thread_count"] == {"string_value": "1"}
    assert [(group["kind"], group["count"]) for group in document["instance_group"]] == [("KIND_CPU", 1)]
    specific = connection.ask("GET", "/v2/models/specific_versions/config").json()
    assert specific["version_policy"] == {"specific": {"versions": [1, 3]}}
    assert connection.ask("GET", "/v2/models/reshaped/config").json()["input"][0]["reshape"] == {"shape": [16]}


def test_statistics_have_every_member_in_order(connection: Connection) -> None:
    document = connection.ask("GET", "/v2/models/image/stats").json()
    assert list(document) == ["model_stats"]
    (entry,) = document["model_stats"]
    assert list(entry) == [
        "name",
        "version",
        "last_inference",
        "inference_count",
        "execution_count",
        "inference_stats",
        "response_stats",
        "batch_stats",
        "memory_usage",
    ]
    assert (entry["name"], entry["version"]) == ("image", "1")
    assert list(entry["inference_stats"]) == [
        "success",
        "fail",
        "queue",
        "compute_input",
        "compute_infer",
        "compute_output",
        "cache_hit",
        "cache_miss",
    ]
    assert all(list(value) == ["count", "ns"] for value in entry["inference_stats"].values())


def test_statistics_of_one_version_leave_out_the_others(connection: Connection) -> None:
    def versions(path: str) -> list[tuple[str, str]]:
        entries = connection.ask("GET", path).json()["model_stats"]
        return [(entry["name"], entry["version"]) for entry in entries]

    assert versions("/v2/models/all_versions/versions/2/stats") == [("all_versions", "2")]
    assert versions("/v2/models/all_versions/stats") == [("all_versions", str(number)) for number in (1, 2, 3)]


def test_statistics_of_all_models_are_sorted(server: Server, connection: Connection) -> None:
    entries = connection.ask("GET", "/v2/models/stats").json()["model_stats"]
    found = [(entry["name"], int(entry["version"])) for entry in entries]
    assert found == sorted(found)
    assert ("add_sub", 1) in found
    assert ("specific_versions", 2) not in found
    assert ("specific_versions", 3) in found
