"""Python models in the process of the server"""

import gc
import os
import re
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from runners import Engine, EngineOptions
from runners.errors import EngineFailed
from runners.settings import ModelOptions
from runners.worker.loop import Worker
from tests.conftest import StartServer
from tests.integration.python_models import models
from tests.integration.python_models.test_faults import say, workers_of
from tests.integration.python_models.test_models import client_of, pair, tensor
from tests.raw_http import fetch
from tests.serving import ROOT
from tests.waiting import eventually

EXPLICIT = EngineOptions(models=ModelOptions(control="explicit", load=("*",)))
IN_PROCESS = 'parameters { key: "kushi.inprocess" value { string_value: "true" } }'
ASKING = models.ASKING.replace("NAME", "add_sub")


def write(repository: Path, name: str, source: str, config: str) -> None:
    models.write(repository, name, source, config + IN_PROCESS)


@pytest.mark.clock
def test_models_in_the_process_answer_and_ask_each_other(repository: Path, start_server: StartServer) -> None:
    write(repository, "add_sub", models.ADD_SUB, models.ADD_SUB_CONFIG)
    write(repository, "asking", ASKING, models.ADD_SUB_CONFIG)
    server = start_server(repository)
    assert workers_of(server) == []
    client = client_of(server)
    a, b = np.ones((2, 3), np.float32), np.full((2, 3), 4, np.float32)
    assert client.infer("add_sub", pair(a, b)).as_numpy("OUTPUT0").tolist() == [[5] * 3] * 2
    assert client.infer("asking", pair(a, b)).as_numpy("OUTPUT1").tolist() == [[-30] * 3] * 2
    # beyond what a frame holds
    large = np.ones((1, 100_000), np.float32)
    assert client.infer("add_sub", pair(large, large)).as_numpy("OUTPUT0").sum() == 200_000
    assert server.stop() == 0


def test_a_model_whose_cores_the_system_refuses_runs_on_any_with_a_warning(
    repository: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: int, cores: object) -> None:
        raise OSError(22, "Invalid argument")

    core = min(os.sched_getaffinity(0))
    kept = f'parameters {{ key: "kushi.cores" value {{ string_value: "{core}" }} }}'
    write(repository, "add_sub", models.ADD_SUB, models.ADD_SUB_CONFIG + kept)
    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    one = np.ones((1, 1), np.float32)
    with Engine(repository) as engine:
        assert engine.infer("add_sub", one, one)["OUTPUT0"].tolist() == [[2]]
    assert f"is not kept on cores [{core}]: [Errno 22] Invalid argument" in caplog.text


def test_the_debugger_stops_in_a_model_in_the_process(repository: Path) -> None:
    source = models.ADD_SUB.replace(
        "    def execute(self, requests):\n", "    def execute(self, requests):\n        breakpoint()\n"
    )
    write(repository, "add_sub", source, models.ADD_SUB_CONFIG)
    ask = (
        "import sys, numpy as np; from runners import Engine; one = np.ones((1, 1), np.float32)\n"
        "with Engine(sys.argv[1]) as engine: print(engine.infer('add_sub', one, one)['OUTPUT0'])"
    )
    command = [sys.executable, "-c", ask, str(repository)]
    ended = subprocess.run(
        command, input="p len(requests)\nc\n", cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert re.search(r"model\.py\(\d+\)execute.*\(Pdb\) 1\n.*\[\[2\.\]\]", ended.stdout, re.DOTALL), ended.stdout


def test_a_stream_comes_from_a_model_in_the_process(repository: Path, start_server: StartServer) -> None:
    write(repository, "counting", models.COUNTING, models.COUNTING_CONFIG)
    path = "/v2/models/counting/generate_stream"
    answer = fetch(start_server(repository).http, "POST", path, body=b'{"COUNT": 100}')
    assert re.findall(rb'"NUMBER":(\d+)', answer.body) == [str(number).encode() for number in range(100)]


def test_what_a_model_in_the_process_raises_is_an_error_and_one_that_exits_begins_again(
    repository: Path, start_server: StartServer
) -> None:
    write(repository, "faulty", models.FAULTY, models.FAULTY_CONFIG)
    server = start_server(repository)
    client = client_of(server)
    with pytest.raises(InferenceServerException, match="ValueError: no such thing"):
        say(client, "raise")
    with pytest.raises(InferenceServerException, match=r"faulty_\S+ ended while it executed"):
        say(client, "sys.exit")
    server.log.wait_for(re.compile("has asked to exit with 4: its thread ends"), 10)
    assert say(client, "hello") == "hello"


LEAVING = """
import sys

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        if pb_utils.get_input_tensor_by_name(requests[0], "WHAT").as_numpy()[0] == b"leave":
            sys.exit(4)
        return self.answer(requests)

    async def answer(self, requests):
        said = pb_utils.Tensor("SAID", np.array([b"well"], np.object_))
        return [pb_utils.InferenceResponse([said]) for _ in requests]
"""


def test_the_coroutines_of_a_model_that_exits_end_with_it(repository: Path) -> None:
    write(repository, "leaving", LEAVING, models.COUNTED_CONFIG)
    before = set(threading.enumerate())
    with Engine(repository) as engine:
        for _ in range(3):
            assert engine.infer("leaving", np.array([b"stay"], np.object_))["SAID"].tolist() == [b"well"]
            with pytest.raises(EngineFailed, match="ended while it executed"):
                engine.infer("leaving", np.array([b"leave"], np.object_))
        loops = [one for one in set(threading.enumerate()) - before if one.name == "kushi-coroutines"]
        assert len(loops) <= 1


ASKING_LATER = """
import asyncio
import pathlib

import triton_python_backend_utils as pb_utils

GO = pathlib.Path(__file__).with_name("go")


class TritonPythonModel:
    async def execute(self, requests):
        while not GO.exists():
            await asyncio.sleep(0.01)
        answers = [
            await pb_utils.InferenceRequest(
                model_name="add_sub", requested_output_names=["OUTPUT1"], inputs=request.inputs()
            ).async_exec()
            for request in requests
        ]
        return [pb_utils.InferenceResponse(answer.output_tensors()) for answer in answers]
"""

ASKING_OFTEN = """
import asyncio
import pathlib

import triton_python_backend_utils as pb_utils

GO = pathlib.Path(__file__).parents[2] / "middle" / "1" / "go"


class TritonPythonModel:
    async def execute(self, requests):
        return [await self.answer(request) for request in requests]

    async def answer(self, request):
        asked = [
            pb_utils.InferenceRequest(
                model_name="middle", requested_output_names=["OUTPUT1"], inputs=request.inputs()
            ).async_exec()
            for _ in range(300)
        ]
        GO.touch()
        answers = await asyncio.gather(*asked)
        assert not any(answer.has_error() for answer in answers)
        return pb_utils.InferenceResponse(answers[-1].output_tensors())
"""


def test_many_calls_of_one_model_leave_threads_for_those_of_another(repository: Path) -> None:
    write(repository, "add_sub", models.ADD_SUB, models.ADD_SUB_CONFIG)
    write(repository, "middle", ASKING_LATER, models.ADD_SUB_CONFIG)
    write(repository, "often", ASKING_OFTEN, models.ADD_SUB_CONFIG)
    a, b = np.ones((1, 1), np.float32), np.full((1, 1), 4, np.float32)
    with Engine(repository) as engine:
        assert engine.infer("often", a, b, deadline=60)["OUTPUT1"].tolist() == [[-3]]


SENDING_FROM_THREADS = """
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import triton_python_backend_utils as pb_utils

pool = ThreadPoolExecutor(4)


class TritonPythonModel:
    def execute(self, requests):
        list(pool.map(self.answer, requests))
        return [None for _ in requests]

    def answer(self, request):
        said = pb_utils.Tensor("SAID", request.inputs()[0].as_numpy())
        assert not request.is_cancelled()
        request.get_response_sender().send(
            pb_utils.InferenceResponse([said]), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        )
"""


def test_threads_of_models_answer_their_own_clients(repository: Path) -> None:
    for name in ("one", "other"):
        write(repository, name, SENDING_FROM_THREADS, models.COUNTED_CONFIG + "instance_group { count: 2 }")

    def ask(number: int) -> bool:
        model, word = ("one", "other")[number % 2], f"{number}".encode()
        asked = np.array([word], np.object_)
        return bool(engine.infer(model, asked, deadline=20)["SAID"].tolist() == [word])

    with Engine(repository) as engine, ThreadPoolExecutor(8) as askers:
        assert all(askers.map(ask, range(200)))


ASKING_FROM_THREADS = """
import asyncio
import functools
import threading

import numpy as np
import triton_python_backend_utils as pb_utils


def asked(request):
    return pb_utils.InferenceRequest(
        model_name="add_sub", requested_output_names=["OUTPUT1"], inputs=request.inputs()
    )


class TritonPythonModel:
    async def execute(self, requests):
        loop = asyncio.get_running_loop()
        answers = []
        for request in requests:
            # one that knows nothing of the model but what it is handed, and one that runs a function of its file
            handed = await loop.run_in_executor(None, asked(request).exec)
            own = []
            thread = threading.Thread(target=lambda: own.append((asked(request).exec(), pb_utils.get_model_dir())))
            thread.start()
            thread.join()
            ((answer, directory),) = own
            assert not handed.has_error() and not answer.has_error(), (handed.error(), answer.error())
            assert directory == HERE
            answers.append(pb_utils.InferenceResponse(answer.output_tensors()))
        return answers
"""


def test_threads_of_models_ask_as_their_own_models(repository: Path) -> None:
    write(repository, "add_sub", models.ADD_SUB, models.ADD_SUB_CONFIG)
    for name in ("one", "other", "third"):
        source = ASKING_FROM_THREADS.replace("HERE", repr(str(repository / name / "1")))
        write(repository, name, source, models.ADD_SUB_CONFIG)
    a, b = np.ones((1, 1), np.float32), np.full((1, 1), 4, np.float32)
    with Engine(repository, options=EXPLICIT) as engine:
        for _ in range(2):
            for name in ("one", "other"):
                assert engine.infer(name, a, b, deadline=20)["OUTPUT1"].tolist() == [[-3]]
            # the one that may have been loaded last
            engine.unload_model("third")


INITIALIZED = weakref.WeakSet[object]()
"""Models that say so and are still there"""


def workers_alive() -> list[Worker]:
    return [one for one in gc.get_objects() if isinstance(one, Worker)]


def test_a_model_that_is_unloaded_leaves_no_memory_also_where_it_refers_to_itself(repository: Path) -> None:
    initialize = """
    def initialize(self, args):
        from tests.integration.python_models.test_in_process import INITIALIZED

        self.itself = self
        INITIALIZED.add(self)
"""
    source = models.FAULTY.replace("class TritonPythonModel:", f"class TritonPythonModel:{initialize}")
    write(repository, "faulty", source, models.FAULTY_CONFIG)
    gc.collect()
    # of other tests, which may have left some
    before = weakref.WeakSet(workers_alive())
    with Engine(repository, options=EXPLICIT) as engine:
        gc.collect()
        gc.disable()
        try:
            workers = [weakref.ref(one) for one in workers_alive() if one not in before]
            assert len(workers) == 1
            assert len(INITIALIZED) == 1
            engine.unload_model("faulty")
            eventually(lambda: workers[0]() is None and not INITIALIZED, "it has gone, and nobody had to collect it")
        finally:
            gc.enable()


def test_a_reload_takes_the_new_file(repository: Path, start_server: StartServer) -> None:
    write(repository, "faulty", models.FAULTY, models.FAULTY_CONFIG)
    server = start_server(repository, "--model-control-mode=explicit", "--load-model=faulty")
    client = client_of(server)
    for word in ("hello", "goodbye"):
        file = repository / "faulty" / "1" / "model.py"
        file.write_text(models.FAULTY.replace("np.array([what.encode()]", f'np.array([b"{word}"]'))
        client.load_model("faulty")
        said = client.infer("faulty", [tensor("WHAT", np.array([b"?"], np.object_))]).as_numpy("SAID")
        assert said[0] == word.encode()


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (IN_PROCESS.replace("true", "yes"), "must be 'true' or 'false', got 'yes'"),
        (IN_PROCESS + IN_PROCESS.replace("inprocess", "python"), "asks for another interpreter by 'kushi.python'"),
    ],
)
def test_what_cannot_run_in_the_process_is_refused(repository: Path, parameters: str, text: str) -> None:
    models.write(repository, "add_sub", models.ADD_SUB, models.ADD_SUB_CONFIG + parameters)
    with Engine(repository, options=EngineOptions(exit_on_error=False)) as engine:
        assert text in str(engine.failures["add_sub"])
