"""The management calls: what tritonclient.http answers to the same question, whichever way they go."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest
from tritonclient.http import InferenceServerClient
from tritonclient.utils import shared_memory

from runners import (
    Client,
    ConfigInvalid,
    Engine,
    EngineOptions,
    InvalidInput,
    KushiError,
    ModelNotFound,
    ModelOptions,
    ModelUnavailable,
)
from tests import models
from tests.contract.ways import WAYS, door
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from runners.calls import Calls

    Ask = Callable[..., Any]

UNKNOWN: Final = "Request for unknown model: {} is not found"

QUESTIONS: Final[list[tuple[str, dict[str, Any]]]] = [
    ("is_server_live", {}),
    ("is_server_ready", {}),
    ("is_model_ready", {"model_name": "add_sub"}),
    ("is_model_ready", {"model_name": "add_sub", "model_version": "1"}),
    ("is_model_ready", {"model_name": "add_sub", "model_version": "7"}),
    ("is_model_ready", {"model_name": "missing"}),
    ("get_server_metadata", {}),
    ("get_model_metadata", {"model_name": "add_sub"}),
    ("get_model_metadata", {"model_name": "all_versions", "model_version": "2"}),
    ("get_model_config", {"model_name": "add_sub"}),
    ("get_model_config", {"model_name": "all_versions", "model_version": "2"}),
    ("get_model_repository_index", {}),
    ("get_inference_statistics", {}),
    ("get_inference_statistics", {"model_name": "image"}),
    ("get_inference_statistics", {"model_name": "all_versions", "model_version": "2"}),
    ("get_log_settings", {}),
    ("get_trace_settings", {}),
    ("get_trace_settings", {"model_name": "add_sub"}),
]
CHANGES: Final = (
    "load_model",
    "unload_model",
    "register_system_shared_memory",
    "unregister_system_shared_memory",
    "get_system_shared_memory_status",
    "update_log_settings",
    "update_trace_settings",
)
NAMES: Final = sorted({name for name, _ in QUESTIONS} | set(CHANGES))


@pytest.fixture(scope="module")
def triton(ways: Mapping[str, Calls]) -> Iterator[InferenceServerClient]:
    http = ways["http"]
    assert isinstance(http, Client)
    with InferenceServerClient(http.url.removeprefix("http://")) as client:
        yield client


def ask(calls: Calls, question: str, /, **arguments: object) -> Any:  # noqa: ANN401 - any JSON
    return getattr(calls, question)(**arguments)


def ask_async(calls: Calls, question: str, /, **arguments: object) -> Any:  # noqa: ANN401 - any JSON
    async def asked() -> Any:  # noqa: ANN401 - any JSON
        return await getattr(calls, f"async_{question}")(**arguments)

    return asyncio.run(asked())


both_forms = pytest.mark.parametrize("ask", [ask, ask_async], ids=["sync", "async"])


@both_forms
@pytest.mark.parametrize(("name", "arguments"), QUESTIONS)
def test_a_question_has_the_answer_that_tritonclient_has(
    calls: Calls, triton: InferenceServerClient, ask: Ask, name: str, arguments: dict[str, Any]
) -> None:
    assert ask(calls, name, **arguments) == getattr(triton, name)(**arguments)


@both_forms
def test_a_version_may_be_a_number(calls: Calls, ask: Ask) -> None:
    assert ask(calls, "is_model_ready", model_name="add_sub", model_version=1)
    assert not ask(calls, "is_model_ready", model_name="add_sub", model_version=9)


@both_forms
def test_a_question_takes_a_deadline(calls: Calls, ask: Ask) -> None:
    assert ask(calls, "is_server_ready", deadline=60)


@dataclass(frozen=True)
class Refused:
    """A call, the error that it raises, with its status, and the message of it as a pattern."""

    question: str
    arguments: dict[str, Any]
    raised: type[KushiError]
    status: int
    text: str

    def __str__(self) -> str:
        return f"{self.question} {', '.join(map(repr, self.arguments.values()))}"


NUMBER: Final = "expected a number, a label of the model, or '' for the latest"
REFUSALS: Final = [
    Refused("get_model_metadata", {"model_name": "missing"}, ModelNotFound, 404, UNKNOWN.format("'missing'")),
    Refused("get_model_metadata", {"model_name": "a/b c?#é"}, ModelNotFound, 404, UNKNOWN.format(r"'a/b c\?#é'")),
    Refused("get_model_metadata", {"model_name": ""}, InvalidInput, 400, "model_name is '', expected a name"),
    Refused("get_model_metadata", {"model_name": 5}, InvalidInput, 400, "model_name is 5, expected a name"),
    Refused(
        "get_model_config",
        {"model_name": "add_sub", "model_version": "7"},
        ModelNotFound,
        404,
        UNKNOWN.format("'add_sub' version 7"),
    ),
    Refused(
        "get_model_config",
        {"model_name": "add_sub", "model_version": "1x"},
        InvalidInput,
        400,
        f"model_version is '1x', {NUMBER}",
    ),
    Refused(
        "get_model_config",
        {"model_name": "add_sub", "model_version": True},
        InvalidInput,
        400,
        f"model_version is True, {NUMBER}",
    ),
    Refused(
        "get_model_config",
        {"model_name": "add_sub", "model_version": -1},
        InvalidInput,
        400,
        f"model_version is -1, {NUMBER}",
    ),
    Refused(
        "get_inference_statistics",
        {"model_name": "missing"},
        InvalidInput,
        400,
        "requested model 'missing' is not available",
    ),
]


def check(calls: Calls, ask: Ask, row: Refused) -> None:
    with pytest.raises(row.raised) as caught:
        ask(calls, row.question, **row.arguments)
    error = caught.value
    assert re.fullmatch(row.text, str(error)), str(error)
    name = row.arguments.get("model_name")
    assert (type(error), error.status, error.model) == (
        row.raised,
        row.status,
        name if isinstance(name, str) and name else None,
    )


@both_forms
@pytest.mark.parametrize("row", REFUSALS, ids=str)
def test_a_question_fails_in_the_same_words(calls: Calls, ask: Ask, row: Refused) -> None:
    check(calls, ask, row)


@pytest.fixture(scope="module", params=WAYS)
def changing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calls]:
    """An engine whose models may be changed, and a way to it."""
    folder = tmp_path_factory.mktemp("changing")
    repository = folder / "repository"
    models.write_add_sub(repository)
    models.write(repository, "broken", b"not a model")
    models.write(repository, "wrong", models.plus_constant(1), "max_batch_sise: 1")
    options = EngineOptions(models=ModelOptions(control="explicit", load=("add_sub",)), client_shared_memory=True)
    with Engine(repository, options=options) as engine, door(engine, request.param, folder) as calls:
        yield calls


@both_forms
def test_a_model_is_unloaded_and_loaded(changing: Calls, ask: Ask) -> None:
    ask(changing, "unload_model", model_name="add_sub")
    assert not ask(changing, "is_model_ready", model_name="add_sub")
    assert [row["name"] for row in ask(changing, "get_model_repository_index")] == ["add_sub", "broken", "wrong"]
    ask(changing, "load_model", model_name="add_sub")
    assert ask(changing, "is_model_ready", model_name="add_sub")


@both_forms
def test_a_load_may_bring_a_configuration_and_files(changing: Calls, ask: Ask) -> None:
    model = models.add_sub(("batch", 16)).SerializeToString()
    # so large that it is read aside
    files = {"file:5/model.onnx": model, "file:unused.txt": b"x" * 1_000_000}
    config = json.dumps({"backend": "onnxruntime", "max_batch_size": 2})
    ask(changing, "load_model", model_name="brought", config=config, files=files)
    assert ask(changing, "get_model_metadata", model_name="brought")["versions"] == ["5"]
    assert ask(changing, "get_model_config", model_name="brought")["max_batch_size"] == 2
    ask(changing, "unload_model", model_name="brought")

    def is_gone() -> bool:
        return "brought" not in [row["name"] for row in ask(changing, "get_model_repository_index")]

    eventually(is_gone, "it is forgotten")


@both_forms
def test_unloading_what_is_not_there_changes_nothing(changing: Calls, ask: Ask) -> None:
    ask(changing, "unload_model", model_name="missing", unload_dependents=True)


POLL: Final = "failed to poll from model repository"
REFUSED_CHANGES: Final = [
    Refused("load_model", {"model_name": "missing"}, ModelNotFound, 500, rf"failed to load 'missing', {POLL}"),
    Refused(
        "load_model",
        {"model_name": "broken"},
        ModelUnavailable,
        400,
        r"load failed for model 'broken': version 1 is at UNAVAILABLE state: onnx model '\S+' cannot be loaded: "
        r"Protobuf parsing failed.;\n",
    ),
    Refused(
        "load_model",
        {"model_name": "wrong"},
        ConfigInvalid,
        500,
        rf"failed to load 'wrong', {POLL}: \S+: ModelConfig has no field 'max_batch_sise', did you mean "
        r"'max_batch_size'\?",
    ),
    Refused(
        "load_model",
        {"model_name": "../secret"},
        ConfigInvalid,
        400,
        r"invalid model name '../secret', model name must not contain path traversal characters",
    ),
    Refused("load_model", {"model_name": ""}, InvalidInput, 400, r"model_name is '', expected a name"),
    Refused("unload_model", {"model_name": None}, InvalidInput, 400, r"model_name is None, expected a name"),
    Refused(
        "load_model",
        {"model_name": "add_sub", "config": "{"},
        ConfigInvalid,
        500,
        rf"failed to load 'add_sub', {POLL}: Invalid config override: .+",
    ),
    Refused(
        "load_model",
        {"model_name": "add_sub", "files": {"file:1/model.onnx": b"\0"}},
        ConfigInvalid,
        500,
        rf"failed to load 'add_sub', {POLL}: files take the place of the model's whole directory, so .+",
    ),
    Refused(
        "register_system_shared_memory",
        {"name": "region", "key": "/no such key", "byte_size": 64},
        InvalidInput,
        500,
        r"Unable to open shared memory region: '/no such key'",
    ),
    Refused(
        "get_system_shared_memory_status",
        {"region_name": "region"},
        InvalidInput,
        404,
        r"Unable to find system shared memory region: 'region'",
    ),
]


@both_forms
@pytest.mark.parametrize("row", REFUSED_CHANGES, ids=str)
def test_a_change_fails_in_the_same_words(changing: Calls, ask: Ask, row: Refused) -> None:
    check(changing, ask, row)
    assert changing.is_server_live()


@both_forms
def test_a_region_is_registered_and_forgotten(changing: Calls, ask: Ask) -> None:
    region = shared_memory.create_shared_memory_region("numbers", f"/kushi-{os.getpid()}", 64)
    try:
        ask(changing, "register_system_shared_memory", name="numbers", key=f"/kushi-{os.getpid()}", byte_size=64)
        (row,) = ask(changing, "get_system_shared_memory_status", region_name="numbers")
        assert (row["name"], row["byte_size"], row["offset"]) == ("numbers", 64, 0)
        ask(changing, "unregister_system_shared_memory", name="numbers")
        assert ask(changing, "get_system_shared_memory_status") == []
    finally:
        shared_memory.destroy_shared_memory_region(region)


@pytest.mark.parametrize("name", NAMES)
def test_names_and_arguments_are_those_of_tritonclient(name: str) -> None:
    theirs = list(inspect.signature(getattr(InferenceServerClient, name)).parameters)
    for ours in (name, f"async_{name}"):
        parameters = list(inspect.signature(getattr(Client, ours)).parameters)
        assert [word for word in parameters if word != "deadline"] == [
            word for word in theirs if word not in {"headers", "query_params"}
        ]


@pytest.mark.parametrize("way", WAYS)
def test_metrics_come_over_every_transport(ways: Mapping[str, Calls], way: str) -> None:
    calls = ways[way]
    for metrics in (calls.get_metrics(), asyncio.run(calls.async_get_metrics(deadline=10))):
        assert 'nv_inference_count{model="add_sub",version="1"}' in metrics
        assert metrics.endswith("\n")
