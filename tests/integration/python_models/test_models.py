"""Models written for Triton's Python backend, served as they are"""

import re
from pathlib import Path

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

from runners import Engine
from tests.conftest import StartServer
from tests.integration.python_models import models
from tests.integration.python_models.clients import OPENED
from tests.raw_http import fetch
from tests.serving import Server


def client_of(server: Server) -> InferenceServerClient:
    """It is closed with the test: one that goes by itself may do so on any thread, where gevent cannot close it"""
    client = InferenceServerClient(f"{server.http[0]}:{server.http[1]}", concurrency=8)
    OPENED.append(client)
    return client


def tensor(name: str, array: np.ndarray) -> InferInput:
    kinds = {
        np.dtype(np.float32): "FP32",
        np.dtype(np.int32): "INT32",
        np.dtype(np.int64): "INT64",
        np.dtype(np.object_): "BYTES",
    }
    made = InferInput(name, list(array.shape), kinds[array.dtype])
    made.set_data_from_numpy(array)
    return made


def pair(a: np.ndarray, b: np.ndarray) -> list[InferInput]:
    return [tensor("INPUT0", a), tensor("INPUT1", b)]


@pytest.mark.parametrize("elements", [4, 150_000], ids=["on_the_socket", "in_shared_memory"])
def test_add_sub_answers_small_and_large_tensors(elements: int, repository: Path, start_server: StartServer) -> None:
    models.write(repository, "add_sub", models.ADD_SUB, models.ADD_SUB_CONFIG)
    client = client_of(start_server(repository))
    b = np.ones((2, elements), np.float32)
    for value in range(20):
        a = np.full((2, elements), value, np.float32)
        answer = client.infer("add_sub", pair(a, b))
        assert np.array_equal(answer.as_numpy("OUTPUT0"), a + b)
        assert np.array_equal(answer.as_numpy("OUTPUT1"), a - b)


def test_many_requests_at_once_keep_their_own_answers(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "add_sub", models.ADD_SUB, models.ADD_SUB_CONFIG + "instance_group { count: 2 }")
    client = client_of(start_server(repository))
    b = np.zeros((1, 3), np.float32)
    asked = [(value, np.full((1, 3), value, np.float32)) for value in range(200)]
    answers = [(a, client.async_infer("add_sub", pair(a, b))) for _, a in asked]
    for a, answer in answers:
        assert np.array_equal(answer.get_result().as_numpy("OUTPUT0"), a)


def test_a_repository_may_be_named_from_where_the_server_is(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models.write(repository, "add_sub", models.ADD_SUB, models.ADD_SUB_CONFIG)
    monkeypatch.chdir(repository.parent)
    with Engine(repository.name) as engine:
        one = np.ones((1, 1), np.float32)
        assert engine.infer("add_sub", one, one)["OUTPUT0"].tolist() == [[2]]


def test_a_model_asks_another_one(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "add_sub", models.ADD_SUB, models.ADD_SUB_CONFIG)
    models.write(repository, "asking", models.ASKING.replace("NAME", "add_sub"), models.ADD_SUB_CONFIG)
    client = client_of(start_server(repository))
    a, b = np.array([[5, 6]], np.float32), np.array([[1, 1]], np.float32)
    assert client.infer("asking", pair(a, b)).as_numpy("OUTPUT1").tolist() == [[40, 50]]


def test_a_model_that_asks_itself_gets_an_error_that_names_the_ring(
    repository: Path, start_server: StartServer
) -> None:
    models.write(repository, "first", models.ASKING.replace("NAME", "second"), models.ADD_SUB_CONFIG)
    models.write(repository, "second", models.ASKING.replace("NAME", "first"), models.ADD_SUB_CONFIG)
    client = client_of(start_server(repository))
    one = np.ones((1, 1), np.float32)
    with pytest.raises(InferenceServerException) as raised:
        client.infer("first", pair(one, one))
    ring = "'second' → 'first' → 'second'"
    assert raised.value.message() == f"model 'second' cannot ask 'first': that would be a ring: {ring}"


def test_a_model_that_asks_one_that_is_not_there_hears_of_it(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "asking", models.ASKING.replace("NAME", "nobody"), models.ADD_SUB_CONFIG)
    client = client_of(start_server(repository))
    one = np.ones((1, 1), np.float32)
    with pytest.raises(InferenceServerException) as raised:
        client.infer("asking", pair(one, one))
    assert raised.value.message() == "Request for unknown model: 'nobody' is not found"


def test_a_decoupled_model_streams_from_a_thread_of_its_own(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "counting", models.COUNTING, models.COUNTING_CONFIG)
    server = start_server(repository)
    path = "/v2/models/counting/generate_stream"
    answer = fetch(server.http, "POST", path, body=b'{"COUNT": 300}')
    events = [line for line in answer.body.decode().splitlines() if line.startswith("data: ")]
    assert [f'"NUMBER":{number},' in event for number, event in enumerate(events)] == [True] * 300


def test_an_error_in_a_stream_ends_that_request_alone(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "counting", models.FAILING_STREAM, models.COUNTING_CONFIG)
    server = start_server(repository)
    path = "/v2/models/counting/generate_stream"
    for _ in range(5):
        assert b"nothing to count" in fetch(server.http, "POST", path, body=b'{"COUNT": 0}').body
        assert b'"NUMBER":7,' in fetch(server.http, "POST", path, body=b'{"COUNT": 7}').body
    assert not any("is started again" in line for line in server.log.lines)


def test_a_model_may_leave_a_stream_of_another_one_unread(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "counting", models.COUNTING, models.COUNTING_CONFIG)
    config = models.COUNTING_CONFIG.replace("model_transaction_policy { decoupled: true }", "")
    models.write(repository, "giving_up", models.GIVING_UP, config)
    client = client_of(start_server(repository))
    for _ in range(5):
        answer = client.infer("giving_up", [tensor("COUNT", np.array([1000], np.int32))])
        assert answer.as_numpy("NUMBER").tolist() == [100]


@pytest.mark.parametrize(
    ("groups", "names"),
    [
        ("", {"named_0"}),
        ("instance_group { count: 2 }", {"named_0_0", "named_0_1"}),
        ('instance_group [ { }, { name: "big" count: 2 } ]', {"named_0_0", "big_0", "big_1"}),
    ],
    ids=["no_group", "a_group", "a_group_with_a_name"],
)
def test_instances_are_called_as_in_triton(
    groups: str, names: set[str], repository: Path, start_server: StartServer
) -> None:
    source = models.ADD_SUB.replace("def initialize(self, args):", "def initialize(self, args):\n        print('here')")
    source = source.replace("'here'", "'I am ' + args['model_instance_name']")
    models.write(repository, "named", source, models.ADD_SUB_CONFIG + groups)
    server = start_server(repository)
    for name in names:
        server.log.wait_for(re.compile(f"{name}: I am {name}$"), 10)


def test_of_two_outputs_of_one_name_the_first_counts(repository: Path, start_server: StartServer) -> None:
    source = models.ADD_SUB.replace('"OUTPUT1", (a - b)', '"OUTPUT0", (a - b)')
    models.write(repository, "add_sub", source, models.ADD_SUB_CONFIG)
    client = client_of(start_server(repository))
    two, one = np.full((1, 1), 2, np.float32), np.ones((1, 1), np.float32)
    answer = client.infer("add_sub", pair(two, one))
    assert answer.as_numpy("OUTPUT0").tolist() == [[3]]
    assert answer.as_numpy("OUTPUT1") is None
