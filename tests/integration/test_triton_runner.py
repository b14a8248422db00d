"""Services that were written for ``bentoml.triton.Runner``, on a TritonRunner: only the constructor is another one."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from onnx import helper

from runners import (
    ConfigInvalid,
    DeadlineExceeded,
    Engine,
    EngineOptions,
    InvalidInput,
    ModelNotFound,
    ModelUnavailable,
    ShuttingDown,
    TritonRunner,
    Unsupported,
)
from tests import models
from tests.integration import triton_service as service
from tests.shared_memory import Object

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path
    from types import ModuleType

    from tests.conftest import StartServer

EXPLICIT = ["--model-control-mode=explicit", "--load-model=*", "--log-info=false"]
ROW = service.ROW
ONES = service.ONES
INPUTS = [
    {"name": "INPUT0", "datatype": "INT32", "shape": [-1, 16]},
    {"name": "INPUT1", "datatype": "INT32", "shape": [-1, 16]},
]
NAMES = ["add_sub", "identity_bytes"]


@pytest.fixture(scope="module")
def model_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    models.write_add_sub(folder)
    inputs, outputs = ([(name, "BYTES", [-1])] for name in ("INPUT0", "OUTPUT0"))
    text = models.config("identity_bytes", inputs, outputs, max_batch_size=8)
    models.write(folder, "identity_bytes", models.identity("BYTES"), text)
    return folder


@pytest.fixture
def served(request: pytest.FixtureRequest, model_repository: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Puts a runner of some type, on an engine somewhere, under the code of the service"""
    kind, place = request.param
    if place == "repository":
        runner = TritonRunner("triton_runner", str(model_repository), kind, cli_args=EXPLICIT)
    else:
        start: StartServer = request.getfixturevalue("start_server")
        socket = request.getfixturevalue("tmp_path") / "socket"
        server = start(model_repository, *EXPLICIT[:2], f"--local-socket={socket}")
        url = f"unix://{socket}" if place == "unix" else f"http://127.0.0.1:{server.http[1]}"
        runner = TritonRunner("triton_runner", tritonserver_type=kind, url=url)
    monkeypatch.setattr(service, "triton_runner", runner)
    yield kind
    runner.destroy()


everywhere = pytest.mark.parametrize(
    "served", [(kind, place) for kind in ("grpc", "http") for place in ("repository", "unix", "http")], indirect=True
)


def answers(calls: list[Callable[[], Coroutine[Any, Any, Any]]]) -> dict[str, Any]:
    async def all_of_them() -> dict[str, Any]:
        return {call.__name__: await call() for call in calls}

    return asyncio.run(all_of_them())


@everywhere
def test_the_code_of_a_service_runs_unchanged(served: str) -> None:
    told = answers(service.GRPC if served == "grpc" else service.HTTP)
    np.testing.assert_array_equal(told.pop("predict"), ROW + 1)
    np.testing.assert_array_equal(told.pop("predict_by_name"), ROW - 1)
    np.testing.assert_array_equal(told.pop("predict_with"), ROW - 1)
    np.testing.assert_array_equal(told.pop("predict_in_parallel"), [ROW + 1, ROW + 2, ROW + 3, ROW + 4])
    assert told.pop("predict_strings") == [b"fire", "串".encode()]
    assert told.pop("mistakes") == ["InvalidInput", "ModelNotFound", "InvalidInput"]
    assert told.pop("health") == [True, True, True, True, False]
    assert told.pop("unload_and_load") == [False, True]
    if served == "grpc":
        tensors = [tuple(tensor.values()) for tensor in INPUTS]
        assert told.pop("messages") == [NAMES, ("add_sub", 8, ["INPUT0", "INPUT1"]), tensors, ["add_sub"], "triton"]
        printed = [{**tensor, "shape": [str(size) for size in (-1, 16)]} for tensor in INPUTS]
        assert told.pop("json_of_messages") == [NAMES, 8, printed]
    else:
        assert told.pop("dictionaries") == [NAMES, ("add_sub", 8), INPUTS, ["add_sub"]]
    assert told == {}


@pytest.mark.parametrize("served", [("grpc", "repository")], indirect=True)
@pytest.mark.parametrize("client", [grpc_client, http_client], ids=["grpc", "http"])
def test_the_inputs_of_tritonclient_are_taken(served: str, client: ModuleType) -> None:
    np.testing.assert_array_equal(asyncio.run(service.predict_with_the_client(client)), ROW - 1)
    words = asyncio.run(service.predict_with_inputs_of_the_client(client))
    assert words.tolist() == [[b"fire", b""]]


@everywhere
def test_an_output_of_tritonclient_comes_as_its_best_classes(served: str) -> None:
    for client, wanted in ((grpc_client, {}), (http_client, {}), (http_client, {"binary_data": False})):
        best = asyncio.run(service.best_classes_with_the_client(client, **wanted))
        assert best == [[b"16:15", b"15:14"]]


def test_an_input_of_tritonclient_is_taken_as_json(model_repository: Path) -> None:
    runner = TritonRunner("r", model_repository)
    first, second = (http_client.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1"))
    first.set_data_from_numpy(ROW, binary_data=False)
    second.set_data_from_numpy(ONES, binary_data=True)
    assert (runner.add_sub.run(first, second)["OUTPUT0"] == ROW + 1).all()
    runner.destroy()


def test_an_input_of_tritonclient_without_data_is_refused(model_repository: Path) -> None:
    runner = TritonRunner("r", model_repository)
    for client in (grpc_client, http_client):
        given = client.InferInput("INPUT0", [1, 16], "INT32")
        with pytest.raises(InvalidInput, match="input 'INPUT0' has no data, expected set_data_from_numpy"):
            runner.add_sub.run(given, ONES)
        given.set_shared_memory("region", 64)
        with pytest.raises(Unsupported, match="input 'INPUT0' lies in shared memory"):
            runner.add_sub.run(given, ONES)
    runner.destroy()


def test_tensors_of_tritonclient_that_cannot_be_right_are_refused(model_repository: Path) -> None:
    runner = TritonRunner("r", model_repository)

    async def asked(inputs: list[Any], outputs: list[Any]) -> list[str]:
        return list(await runner.infer("add_sub", inputs, outputs=outputs))

    inputs: list[Any] = []
    for client in (grpc_client, http_client):
        inputs = [client.InferInput(name, [1, 16], "INT32").set_data_from_numpy(ROW) for name in ("INPUT0", "INPUT1")]
        assert asyncio.run(asked(inputs, [client.InferRequestedOutput("OUTPUT1")])) == ["OUTPUT1"]
        ranked = client.InferRequestedOutput("OUTPUT0", class_count=-1)
        with pytest.raises(InvalidInput, match="the class count of output 'OUTPUT0' is -1, expected an int of 0 or"):
            asyncio.run(asked(inputs, [ranked]))
        twice = [client.InferRequestedOutput("OUTPUT0", class_count=count) for count in (0, 3)]
        with pytest.raises(InvalidInput, match=r"\[request id: <id_unknown>\] output 'OUTPUT0' already exists in requ"):
            asyncio.run(asked(inputs, twice))
        with pytest.raises(InvalidInput, match=r"\[request id: <id_unknown>\] input 'INPUT0' already exists in reques"):
            asyncio.run(asked([*inputs, inputs[0]], []))
        shared = client.InferRequestedOutput("OUTPUT0")
        shared.set_shared_memory("region", 64)
        with pytest.raises(Unsupported, match="output 'OUTPUT0' is wanted in shared memory"):
            asyncio.run(asked(inputs, [shared]))
    with pytest.raises(InvalidInput, match="inputs: expected a list of what tritonclient calls InferInput, got"):
        asyncio.run(asked([ROW, ONES], []))
    with pytest.raises(InvalidInput, match="outputs: expected a list of what tritonclient calls InferRequestedOutput"):
        asyncio.run(asked(inputs, ["OUTPUT0"]))
    runner.destroy()


def test_flags_are_taken_with_their_values_behind_them(model_repository: Path) -> None:
    flags = ["--model-control-mode", "explicit", "--load-model", "add_sub"]
    runner = TritonRunner("r", model_repository, cli_args=flags)
    assert (runner.add_sub.run(ROW, ONES)["OUTPUT0"] == ROW + 1).all()
    assert not asyncio.run(runner.is_model_ready("identity_bytes"))
    runner.destroy()


def test_flags_of_backends_are_taken(tmp_path: Path) -> None:
    models.write(tmp_path, "add_sub", models.add_sub(["batch", 16]))
    runner = TritonRunner("r", tmp_path, "http", cli_args=["--backend-config=onnxruntime,default-max-batch-size=3"])
    assert asyncio.run(runner.get_model_config("add_sub"))["max_batch_size"] == 3
    runner.destroy()


def test_an_input_may_be_called_as_an_option_is(tmp_path: Path) -> None:
    node = helper.make_node("Identity", ["deadline"], ["OUTPUT0"])
    tensors = [models.tensor(name, "INT32", ["batch", 16]) for name in ("deadline", "OUTPUT0")]
    models.write(tmp_path, "m", models.model([node], tensors[:1], tensors[1:]))
    runner = TritonRunner("r", tmp_path)
    assert (runner.m.run(deadline=ROW)["OUTPUT0"] == ROW).all()
    assert (asyncio.run(runner.m.async_run(deadline=ROW))["OUTPUT0"] == ROW).all()
    runner.destroy()


def test_nothing_is_opened_before_the_first_use(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    runner = TritonRunner("Runner", tmp_path / "nowhere")
    assert (runner.name, runner.tritonserver_type, runner.cli_args) == ("runner", "grpc", [])
    assert set(threading.enumerate()) <= before
    with pytest.raises(ConfigInvalid, match="nowhere"):
        runner.init_local()
    with pytest.raises(ConfigInvalid, match="nowhere"):
        asyncio.run(runner.is_server_live())
    assert not asyncio.run(runner.runner_handle_is_ready())


def test_threads_that_come_at_the_same_time_share_one_engine(model_repository: Path) -> None:
    runner = TritonRunner("r", model_repository)
    opened: list[object] = []
    threads = [threading.Thread(target=lambda: opened.append(runner._opened())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 8
    assert len(set(map(id, opened))) == 1
    assert asyncio.run(runner.runner_handle_is_ready(timeout=5))
    runner.destroy()


def test_the_first_use_fails_when_a_model_cannot_be_loaded_as_tritonserver_does(tmp_path: Path) -> None:
    models.write_add_sub(tmp_path)
    models.write(tmp_path, "broken", b"not a model")
    with pytest.raises(ModelUnavailable, match=r"model 'broken' failed to load: .*broken/1/model\.onnx"):
        TritonRunner("r", tmp_path).add_sub.run(ROW, ONES)
    runner = TritonRunner("r", tmp_path, cli_args=["--exit-on-error=false"])
    assert (runner.add_sub.run(ROW, ONES)["OUTPUT0"] == ROW + 1).all()
    runner.destroy()


def test_a_runner_that_is_destroyed_opens_nothing_again(model_repository: Path) -> None:
    runner = TritonRunner("r", model_repository)
    runner.init_client()
    runner.destroy()
    runner.destroy()
    with pytest.raises(ShuttingDown, match="TritonRunner 'r' is destroyed"):
        runner.add_sub.run(ROW, ONES)


def test_settings_of_logs_and_traces_are_told_and_changed(model_repository: Path) -> None:
    async def ask(kind: Literal["grpc", "http"], **options: Any) -> list[Any]:  # noqa: ANN401 - what a call takes
        runner = TritonRunner("r", model_repository, kind)
        told = [
            await runner.get_log_settings(**options),
            await runner.update_log_settings({"log_verbose_level": 0}, **options),
            await runner.update_trace_settings("add_sub", {"trace_rate": "500"}, **options),
            await runner.get_trace_settings(**options),
        ]
        runner.destroy()
        return told

    log, changed, of_model, of_all = asyncio.run(ask("http"))
    assert (log["log_info"], changed["log_verbose_level"]) == (True, 0)
    assert (of_model["trace_rate"], of_all["trace_rate"], of_all["trace_level"]) == ("500", "1000", ["OFF"])
    log, changed, of_model, of_all = asyncio.run(ask("grpc"))
    assert (log.settings["log_info"].bool_param, log.settings["log_format"].string_param) == (True, "default")
    assert changed.settings["log_verbose_level"].uint32_param == 0
    assert list(of_model.settings["trace_rate"].value) == ["500"]
    assert list(of_all.settings["trace_level"].value) == ["OFF"]
    *_, of_all = asyncio.run(ask("grpc", as_json=True))
    assert of_all["settings"]["trace_rate"] == {"value": ["1000"]}


def test_what_no_engine_answers_is_refused_by_name(model_repository: Path) -> None:
    runner = TritonRunner("r", model_repository)
    with pytest.raises(Unsupported, match="TritonRunner 'r': stream_infer is not supported yet"):
        _ = runner.stream_infer
    with pytest.raises(Unsupported, match="headers and query_params are not supported"):
        asyncio.run(runner.load_model("add_sub", headers={"access-key": "admin"}))
    with pytest.raises(Unsupported, match="sequences are not supported yet"):
        asyncio.run(runner.infer("add_sub", [], sequence_id=5))
    runner.destroy()


def test_a_timeout_of_the_client_is_one_of_the_call(model_repository: Path) -> None:
    runner = TritonRunner("r", model_repository)
    with pytest.raises(DeadlineExceeded, match="get_model_config took longer than its client_timeout of 0 s"):
        asyncio.run(runner.get_model_config("add_sub", client_timeout=0))
    runner.destroy()


def test_an_error_of_a_management_call_is_one_of_ours(model_repository: Path) -> None:
    runner = TritonRunner("r", model_repository, "http")
    with pytest.raises(ModelNotFound, match="missing"):
        asyncio.run(runner.get_model_config("missing"))
    runner.destroy()


@pytest.mark.parametrize(
    ("arguments", "raised", "text"),
    [
        ({}, InvalidInput, "expected either a model_repository or a url"),
        ({"model_repository": "m", "url": "http://h:1"}, InvalidInput, "expected either a model_repository or a url"),
        ({"model_repository": "m", "tritonserver_type": "ftp"}, InvalidInput, "expected 'grpc' or 'http', got 'ftp'"),
        ({"url": "http://h:1", "cli_args": ["--x"]}, InvalidInput, "cli_args: expected none beside a url"),
        ({"model_repository": "m", "cli_args": ["--no-such"]}, ConfigInvalid, "cli_args: unknown flag --no-such"),
        ({"model_repository": "m", "cli_args": ["x"]}, ConfigInvalid, "cli_args: expected flags that begin with --"),
        ({"model_repository": "m", "cli_args": "--id=a"}, ConfigInvalid, "expected a list of flags, got '--id"),
        ({"model_repository": "m", "cli_args": ["--http-port=1"]}, Unsupported, "--http-port concerns a server"),
        (
            {"model_repository": "m", "cli_args": ["--host-policy=0,a=b"]},
            Unsupported,
            "cli_args: --host-policy is a flag",
        ),
    ],
)
def test_arguments_that_cannot_be_right_are_refused(
    arguments: dict[str, Any], raised: type[Exception], text: str
) -> None:
    with pytest.raises(raised) as caught:
        TritonRunner("r", **arguments)
    assert text in str(caught.value)


def test_names_say_what_they_are_and_those_of_python_are_no_models(tmp_path: Path) -> None:
    runner = TritonRunner("Runner", tmp_path)
    assert [repr(runner), repr(runner.digits)] == ["<TritonRunner 'runner'>", "<TritonModel 'digits'>"]
    with pytest.raises(AttributeError, match=r"^'TritonRunner' object has no attribute '_private'$"):
        _ = runner._private


@pytest.mark.parametrize("kind", ["grpc", "http"])
def test_regions_of_shared_memory_are_registered_and_forgotten(
    model_repository: Path, kind: Literal["grpc", "http"]
) -> None:
    async def main(runner: TritonRunner, memory: Object) -> list[str]:
        await runner.register_system_shared_memory("region", memory.key, memory.size)
        found = await runner.get_system_shared_memory_status()
        names = [region["name"] for region in found] if kind == "http" else [*found.regions]
        await runner.unregister_system_shared_memory("region")
        return names

    with Engine(model_repository, options=EngineOptions(client_shared_memory=True)) as engine, Object(64) as memory:
        runner = TritonRunner("r", None, kind, url=f"http://127.0.0.1:{engine.serve_http('127.0.0.1', 0)}")
        assert asyncio.run(main(runner, memory)) == ["region"]
        assert engine.get_system_shared_memory_status() == []
        runner.destroy()


def test_without_tritonclient_answers_of_its_form_name_what_to_install(
    model_repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "runners.triton.messages", None)
    runner = TritonRunner("r", model_repository)
    with pytest.raises(Unsupported, match=r"need tritonclient\[grpc\] .*: install it, or say tritonserver_type='http'"):
        asyncio.run(runner.get_server_metadata())
    runner.destroy()


def test_a_runner_and_an_engine_live_beside_each_other(model_repository: Path) -> None:
    runner = TritonRunner("r", model_repository)
    with Engine(model_repository) as engine:
        both = engine.add_sub.run(ROW, ONES)["OUTPUT0"] == runner.model("add_sub").run(ROW, ONES)["OUTPUT0"]
        assert both.all()
    runner.destroy()
