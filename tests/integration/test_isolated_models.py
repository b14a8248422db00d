"""Models whose framework runs in processes of their own: `kushi.isolate`."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import ml_dtypes
import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

from runners import Engine, EngineOptions
from runners.errors import ConfigInvalid, EngineFailed, InternalError, KushiError
from runners.repository import discovery
from tests import odd_backend
from tests.integration.python_models import models as python_models
from tests.integration.python_models.test_faults import workers_of
from tests.odd_backend import put
from tests.processes import lives
from tests.raw_http import frame
from tests.serving import ROOT
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import StartServer
    from tests.serving import Server

DELAYED: Final = "dynamic_batching { preferred_batch_size: 4 max_queue_delay_microseconds: 60000000 }"


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'


ISOLATED: Final = parameter("kushi.isolate", "true")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    odd_backend.install(folder)
    return folder


@pytest.fixture(autouse=True)
def _installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is installed counts from the start of a process: here it is asked for again"""
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", str(site))
    discovery.found.cache_clear()
    yield
    discovery.found.cache_clear()


def say(server: Server, *what: str, model: str = "m") -> list[str]:
    """What is said to some rows"""
    with InferenceServerClient(f"localhost:{server.http[1]}", network_timeout=60) as client:
        tensor = InferInput("WHAT", [len(what), 1], "BYTES")
        tensor.set_data_from_numpy(np.array([[word.encode()] for word in what], np.object_))
        said = client.infer(model, [tensor]).as_numpy("SAID")
    return [row[0].decode() for row in said.tolist()]


def failure(repository: Path) -> KushiError:
    with Engine(repository, options=EngineOptions(exit_on_error=False)) as engine:
        (error,) = engine.failures.values()
    return error


@pytest.mark.clock
def test_the_framework_runs_in_a_process_for_each_instance(repository: Path, start_server: StartServer) -> None:
    put(repository, "m", text=f"{ISOLATED} instance_group {{ count: 2 }}")
    put(repository, "here")
    server = start_server(repository)
    workers = workers_of(server)
    assert len(workers) == 2
    assert {int(said) for _ in range(20) for said in say(server, "process")} <= set(workers)
    assert say(server, "process", model="here") == [str(server.pid)]
    assert say(server, "one", "two", "three") == say(server, "one", "two", "three", model="here")
    assert server.stop() == 0


def test_requests_of_a_batch_are_joined_and_each_gets_its_rows(repository: Path) -> None:
    put(repository, "m", text=f"max_batch_size: 4 {ISOLATED} {DELAYED}")
    answers: dict[int, list[list[bytes]]] = {}
    with Engine(repository) as engine:

        def ask(count: int) -> None:
            what = np.array([["rows"], [f"of {count}"], ["x"]][:count], np.object_)
            answers[count] = engine.infer("m", what)["SAID"].tolist()

        askers = [threading.Thread(target=ask, args=(count,)) for count in (1, 3)]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
        (statistics,) = engine.statistics()["model_stats"]
    assert (statistics["execution_count"], statistics["inference_count"]) == (1, 4)
    assert answers == {1: [[b"4"]], 3: [[b"4"], [b"OF 3"], [b"X"]]}


def test_a_crash_fails_its_batch_and_not_the_server(repository: Path, start_server: StartServer) -> None:
    put(repository, "m", text=ISOLATED)
    server = start_server(repository)
    (process,) = say(server, "process")
    with pytest.raises(InferenceServerException) as raised:
        say(server, "segfault")
    assert raised.value.status() == "500"
    text = (
        "m_0 ended while it executed: it was killed by signal 11 (SIGSEGV: a segmentation fault); the last it printed:"
    )
    assert raised.value.message() == f"{text}\nthe last words"
    assert say(server, "hello") == ["HELLO"]
    assert say(server, "process") != [process]


def test_a_process_that_is_killed_from_outside_is_started_again(repository: Path, start_server: StartServer) -> None:
    put(repository, "m", text=ISOLATED)
    server = start_server(repository)
    (process,) = say(server, "process")
    errors: list[str] = []

    def hang() -> None:
        try:
            say(server, "hang")
        except InferenceServerException as error:
            errors.append(error.message())

    asker = threading.Thread(target=hang)
    asker.start()
    server.log.wait_for(re.compile("m_0: it hangs"), 30)
    os.kill(int(process), signal.SIGKILL)
    asker.join(60)
    assert errors == [
        "m_0 ended while it executed: it was killed by signal 9 (SIGKILL); the last it printed:\nit hangs"
    ]
    assert say(server, "hello") == ["HELLO"]


def test_a_file_that_crashes_its_framework_fails_its_load(repository: Path, start_server: StartServer) -> None:
    put(repository, "bad", "dies", ISOLATED)
    put(repository, "m", text=ISOLATED)
    server = start_server(repository, "--exit-on-error=false", ready=False)
    text = f"{repository}/bad: bad_open: it was killed by signal 11"
    server.log.wait_for(re.compile(re.escape(f"failed to load 'bad' version 1: {text}")), 30)
    assert say(server, "hello") == ["HELLO"]


@pytest.mark.clock
def test_a_file_that_is_never_open_is_given_up_and_its_process_ends_with_the_server(
    repository: Path, start_server: StartServer
) -> None:
    put(repository, "bad", "waits", ISOLATED)
    put(repository, "m", text=ISOLATED)
    server = start_server(repository, "--exit-on-error=false", "--model-load-timeout-secs=8", ready=False)
    server.log.wait_for(re.compile("bad_open: it waits"), 30)
    server.log.wait_for(re.compile(re.escape("failed to load 'bad' version 1: not loaded after 8 s")), 30)
    assert say(server, "hello") == ["HELLO"]
    processes = workers_of(server)
    assert len(processes) == 2
    assert server.stop() == 0
    # the system ends it behind the server
    eventually(lambda: not any(map(lives, processes)), "they have gone as well")


TWO_FORMS: Final = parameter("kushi.alternatives", "other") + parameter("kushi.samples", "rows.npz")


def put_one_that_never_sums(repository: Path) -> None:
    """In the form that is asked before one is served"""
    tensors = 'input { name: "X" data_type: TYPE_FP32 dims: 1 } output { name: "SUM" data_type: TYPE_FP32 dims: 1 }'
    put(repository, "m", "sums", tensors + ISOLATED + TWO_FORMS)
    (repository / "m" / "configs").mkdir()
    (repository / "m" / "configs" / "other.pbtxt").write_text('default_model_filename: "other.odd"')
    (repository / "m" / "1" / "other.odd").write_text("never sums")
    np.savez(repository / "m" / "rows.npz", X=np.ones((2, 1), np.float32))


@pytest.mark.parametrize(
    ("put_model", "first"),
    [
        (lambda repository: put(repository, "m", "waits", ISOLATED), "m_open"),
        (lambda repository: put(repository, "m", "never starts", f"{ISOLATED} instance_group {{ count: 2 }}"), "m_0_1"),
        (put_one_that_never_sums, "m_0"),
    ],
    ids=["opened", "started", "asked"],
)
@pytest.mark.clock
def test_an_unload_gives_up_a_load_and_ends_its_processes(
    put_model: Callable[[Path], None], first: str, repository: Path, start_server: StartServer
) -> None:
    put_model(repository)
    server = start_server(repository, "--model-control-mode=explicit")
    with server.connect() as loading:
        loading.send(frame("POST", "/v2/repository/models/m/load"))
        server.log.wait_for(re.compile(f"{first}: it waits"), 30)
        assert server.post("/v2/repository/models/m/unload", b"").status == 200
        assert "given up: the model is to be unloaded" in loading.receive().error
    eventually(lambda: not workers_of(server), "its processes have gone")
    put(repository, "n", text=ISOLATED)
    assert server.post("/v2/repository/models/n/load", b"").status == 200
    assert say(server, "hello", model="n") == ["HELLO"]
    assert not any("m_" in line and "is started again" in line for line in server.log.lines)


@pytest.mark.parametrize(
    ("told", "extra", "kind"),
    [
        ("refuses", "", ConfigInvalid),
        ("breaks", "", InternalError),
        ("", "max_batch_size: 4 input { name: 'X' data_type: TYPE_STRING dims: 1 }", ConfigInvalid),
        ("", "instance_group { kind: KIND_GPU }", ConfigInvalid),
    ],
)
def test_what_is_wrong_with_a_model_is_said_in_the_same_words(
    repository: Path, tmp_path: Path, told: str, extra: str, kind: type[KushiError]
) -> None:
    put(repository, "m", told, extra + ISOLATED)
    put(tmp_path / "plain", "m", told, extra)
    isolated, plain = failure(repository), failure(tmp_path / "plain")
    assert type(isolated) is type(plain) is kind
    assert str(isolated).replace(str(repository), "") == str(plain).replace(str(tmp_path / "plain"), "")


def test_what_a_backend_warns_of_stands_in_the_log_once(repository: Path, start_server: StartServer) -> None:
    put(repository, "m", "warns", f"{ISOLATED} instance_group {{ count: 2 }}")
    server = start_server(repository)
    assert say(server, "hello") == ["HELLO"]
    server.log.wait_for(re.compile("it is odd"), 10)
    (line,) = [line for line in server.log.lines if "it is odd" in line]
    assert "m_open: it is odd" in line
    assert line.startswith("W")


def test_requests_fail_alone_where_data_may_be_the_reason(repository: Path) -> None:
    put(repository, "m", text=f"max_batch_size: 4 {ISOLATED} {DELAYED}")
    outcomes: dict[str, str] = {}
    with Engine(repository) as engine:

        def ask(words: tuple[str, str]) -> None:
            try:
                answer = engine.infer("m", np.array([[word] for word in words], np.object_))
                outcomes[words[0]] = answer["SAID"][0, 0].decode()
            except EngineFailed as error:
                outcomes[words[0]] = str(error)

        for pair in ((("raise", "x"), ("rows", "x")), (("fail", "x"), ("other", "x"))):
            askers = [threading.Thread(target=ask, args=(words,)) for words in pair]
            for asker in askers:
                asker.start()
            for asker in askers:
                asker.join()
    assert outcomes == {
        "raise": "model 'm' raised ValueError: no such thing",
        "rows": "2",
        "fail": "the device is gone",
        "other": "the device is gone",
    }


def test_a_request_that_the_engine_refuses_is_wrong_for_its_client(repository: Path, start_server: StartServer) -> None:
    put(repository, "m", text=ISOLATED)
    with pytest.raises(InferenceServerException, match="expected another word") as raised:
        say(start_server(repository), "refuse")
    assert raised.value.status() == "400"


SUMS: Final = """
    input { name: "X" data_type: TYPE_BF16 dims: [ 2 ] }
    input { name: "Y" data_type: TYPE_FP16 dims: [ 2 ] optional: true }
    output { name: "SUM" data_type: TYPE_BF16 dims: [ 2 ] }
"""


def test_optional_inputs_and_bfloat16_are_those_of_a_model_that_is_not_isolated(repository: Path) -> None:
    put(repository, "m", "sums", SUMS + ISOLATED)
    put(repository, "here", "sums", SUMS)
    x, y = np.array([1.5, 1.00390625], ml_dtypes.bfloat16), np.array([0.25, 0.00390625], np.float16)
    with Engine(repository) as engine:
        for inputs in ([x], [x, y]):
            got, expected = (engine.infer(model, *inputs)["SUM"] for model in ("m", "here"))
            assert got.dtype == expected.dtype == ml_dtypes.bfloat16
            np.testing.assert_array_equal(got, expected)


def test_parameters_of_requests_and_threads_reach_the_process(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    put(repository, "m", text=ISOLATED)
    put(repository, "here")
    given: dict[str, bool | int | float | str] = {"a": 1, "b": True, "c": "text", "d": 1.5}
    with Engine(repository) as engine:
        one, other = (
            json.loads(engine.infer(model, np.array([["parameters"]], np.object_), parameters=given)["SAID"][0, 0])
            for model in ("m", "here")
        )
        threads = engine.infer("m", np.array([["variable OMP_NUM_THREADS"]], np.object_))["SAID"]
    assert one == other == given
    assert threads == [[b"3"]]


def test_a_batch_that_takes_too_long_and_a_share_of_requests_end_the_process(
    repository: Path, start_server: StartServer
) -> None:
    limits = parameter("kushi.execute_timeout", "1") + parameter("kushi.max_requests", "2")
    put(repository, "m", text=ISOLATED + limits)
    server = start_server(repository)
    with pytest.raises(InferenceServerException, match="it has executed a batch for more than 1 s"):
        say(server, "hang")
    assert len({said for _ in range(6) for said in say(server, "process")}) == 3


@pytest.mark.parametrize("value", ["0", "soon"])
def test_limits_of_processes_are_checked(repository: Path, value: str) -> None:
    put(repository, "m", text=ISOLATED + parameter("kushi.execute_timeout", value))
    text = f"parameter 'kushi.execute_timeout' of model 'm' must be seconds above 0 and below 1,000,000, got '{value}'"
    assert str(failure(repository)) == f"{repository}/m/config.pbtxt: {text}"


def test_samples_are_executed_before_the_first_request(repository: Path) -> None:
    sample = "inputs { key: 'WHAT' value { data_type: TYPE_STRING dims: 1 zero_data: true } }"
    put(repository, "m", text=f"max_batch_size: 4 {ISOLATED} model_warmup {{ name: 'w' batch_size: 1 {sample} }}")
    with Engine(repository) as engine:
        assert engine.infer("m", np.array([["batches"]], np.object_))["SAID"] == [[b"2"]]


def test_check_loads_it_once(repository: Path) -> None:
    put(repository, "m", text=ISOLATED)
    put(repository, "bad", "refuses", ISOLATED)
    command = [sys.executable, "-m", "runners", "check", "--load", str(repository)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "m: loads, odd, version 1: WHAT BYTES [-1, 1] → SAID BYTES [-1, 1]" in done.stdout
    assert f"'{repository}/bad/1/model.odd' is too odd" in done.stdout
    assert done.returncode == 1


def test_a_python_model_takes_it_and_says_that_it_changes_nothing(
    repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    python_models.write(repository, "add_sub", python_models.ADD_SUB, python_models.ADD_SUB_CONFIG + ISOLATED)
    a = np.ones((1, 2), np.float32)
    with caplog.at_level(logging.INFO, "runners"), Engine(repository) as engine:
        assert engine.infer("add_sub", a, a)["OUTPUT0"].tolist() == [[2, 2]]
    assert "model 'add_sub': parameter 'kushi.isolate' changes nothing" in caplog.text


def test_a_python_model_is_not_both_isolated_and_in_the_process_of_the_server(repository: Path) -> None:
    config = python_models.ADD_SUB_CONFIG + ISOLATED + parameter("kushi.inprocess", "true")
    python_models.write(repository, "add_sub", python_models.ADD_SUB, config)
    assert str(failure(repository)).endswith("and in processes of its own ('kushi.isolate'): remove one of them")
