"""Processes that are replaced after so many requests"""

import re
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tests.conftest import StartServer
from tests.integration.python_models import models
from tests.integration.python_models.test_faults import say
from tests.integration.python_models.test_models import client_of, tensor
from tests.raw_http import fetch, frame
from tests.serving import Server, run_to_end
from tests.waiting import eventually


def parameter(value: str) -> str:
    return f'parameters {{ key: "kushi.max_requests" value {{ string_value: "{value}" }} }}'


def test_a_process_is_replaced_between_batches_without_an_error(repository: Path, start_server: StartServer) -> None:
    config = models.COUNTED_CONFIG + parameter("20") + "instance_group { count: 2 }"
    models.write(repository, "numbered", models.NUMBERED, config)
    server = start_server(repository)
    answered: Counter[str] = Counter()
    lock = threading.Lock()
    unready: list[int] = []

    def ask() -> None:
        client = client_of(server)
        for _ in range(50):
            answer = client.infer("numbered", [tensor("WHAT", np.array([b""], np.object_))])
            process: bytes = answer.as_numpy("SAID")[0]
            if not client.is_model_ready("numbered"):
                unready.append(1)
            with lock:
                answered[process.decode()] += 1

    askers = [threading.Thread(target=ask) for _ in range(4)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(60)
    assert (answered.total(), unready) == (200, [])
    # a batch is one request here
    assert max(answered.values()) <= 22
    shares = sorted(answered.values())
    assert len(shares) >= 200 // 22
    # the two that go on may have had less
    assert shares[2] >= 18
    eventually(lambda: server.metrics()["executed"] == 200, "all that was counted is shown")
    server.log.wait_for(re.compile("numbered_0_[01]: finalized"), 10)
    server.log.wait_for(re.compile("numbered_0_[01] is started again after its share of requests"), 10)
    assert not any("has ended and is started again" in line for line in server.log.lines)


def test_a_stream_ends_before_its_process_is_replaced(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "counting", models.COUNTING, models.COUNTING_CONFIG + parameter("1"))
    server = start_server(repository)
    outcomes: list[int] = []

    def ask() -> None:
        outcomes.append(streamed(server, 500))

    askers = [threading.Thread(target=ask) for _ in range(4)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(60)
    assert outcomes == [500] * 4


def streamed(server: Server, count: int) -> int:
    path = "/v2/models/counting/generate_stream"
    answer = fetch(server.http, "POST", path, body=b'{"COUNT": %d}' % count)
    return answer.body.count(b'"NUMBER":')


KEEPING_SOME = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.kept = []

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        if pb_utils.get_input_tensor_by_name(request, "WHAT").as_numpy()[0] == b"keep":
            self.kept.append(request.get_response_sender())
            print("keeps it", flush=True)
            return None
        return pb_utils.InferenceResponse([pb_utils.Tensor("SAID", np.array([b"well"], np.object_))])
"""


def test_what_nobody_waits_for_does_not_hold_up_the_next_process(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "keeping", KEEPING_SOME, models.COUNTED_CONFIG + parameter("4"))
    server = start_server(repository)
    body = b'{"inputs":[{"name":"WHAT","datatype":"BYTES","shape":[1],"data":["keep"]}]}'
    for count in range(1, 5):
        with server.connect() as connection:
            connection.send(frame("POST", "/v2/models/keeping/infer", body=body))
            eventually(lambda: server.log.text().count("keeps it") >= count, "it has begun")  # noqa: B023 - it is asked here
    for _ in range(5):
        answer = client_of(server).infer("keeping", [tensor("WHAT", np.array([b"x"], np.object_))])
        assert answer.as_numpy("SAID").tolist() == [b"well"]
    server.log.wait_for(re.compile("keeping_0 is started again after its share of requests"), 10)


def test_a_model_in_process_has_no_process_to_be_replaced(repository: Path) -> None:
    in_process = 'parameters { key: "kushi.inprocess" value { string_value: "true" } }'
    models.write(repository, "numbered", models.NUMBERED, models.COUNTED_CONFIG + parameter("5") + in_process)
    done = run_to_end(f"--model-repository={repository}", "--http-port=0", "--metrics-port=0")
    assert "which is not replaced: remove 'kushi.max_requests'" in done.stdout


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5", "", "1" * 5000])
def test_what_is_no_number_of_requests_is_refused(value: str, repository: Path) -> None:
    models.write(repository, "numbered", models.NUMBERED, models.COUNTED_CONFIG + parameter(value))
    done = run_to_end(f"--model-repository={repository}", "--http-port=0", "--metrics-port=0")
    text = f"parameter 'kushi.max_requests' of model 'numbered' must be a number above 0, got '{value[:100]}"
    assert text in done.stdout


FROM_BESIDE = """
import os

import numpy as np
import triton_python_backend_utils as pb_utils
from helper import WORD

from package.inner import NUMBER


class TritonPythonModel:
    def execute(self, requests):
        if pb_utils.get_input_tensor_by_name(requests[0], "WHAT").as_numpy()[0] == b"exit":
            os._exit(3)
        answer = pb_utils.Tensor("SAID", np.array([f"{WORD} {NUMBER}"], np.object_))
        return [pb_utils.InferenceResponse([answer]) for _ in requests]
"""


def test_a_process_that_is_started_again_runs_what_was_loaded(repository: Path, start_server: StartServer) -> None:
    """Whatever lies there by then: nobody has loaded it yet, or no load has taken it"""
    models.write(repository, "faulty", FROM_BESIDE, models.FAULTY_CONFIG)
    directory = repository / "faulty"
    (directory / "1" / "helper.py").write_text("WORD = 'old'\n")
    (directory / "package").mkdir()
    (directory / "package" / "__init__.py").touch()
    (directory / "package" / "inner.py").write_text("NUMBER = 1\n")
    server = start_server(repository, "--model-control-mode=explicit", "--load-model=faulty")
    client = client_of(server)
    assert say(client, "?") == "old 1"
    (directory / "1" / "model.py").write_text("raise RuntimeError('half done')\n")
    (directory / "1" / "helper.py").write_text("WORD = 'new'\n")
    (directory / "package" / "inner.py").write_text("NUMBER = 2\n")
    with pytest.raises(InferenceServerException, match="half done"):
        client.load_model("faulty")
    with pytest.raises(InferenceServerException, match="exited with code 3"):
        say(client, "exit")
    assert say(client, "?") == "old 1"
    (directory / "1" / "model.py").write_text(FROM_BESIDE)
    client.load_model("faulty")
    assert say(client, "?") == "new 2"


IN_OTHER_WAYS = """
import importlib.util
import inspect
import os
import sys

import numpy as np
import triton_python_backend_utils as pb_utils

HERE = os.path.dirname(__file__)
sys.path.insert(0, os.path.join(HERE, "..", "common"))
sys.path.insert(0, os.path.join(HERE, "with-dash"))
import dashed
import shared

named = importlib.util.spec_from_file_location("named", os.path.join(HERE, "named.py"))
by_file = importlib.util.module_from_spec(named)
named.loader.exec_module(by_file)


class TritonPythonModel:
    def execute(self, requests):
        if pb_utils.get_input_tensor_by_name(requests[0], "WHAT").as_numpy()[0] == b"exit":
            os._exit(3)
        text = inspect.getsource(shared.word).split("'")[1]
        said = f"{shared.word()} {text} {dashed.WORD} {by_file.WORD}"
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SAID", np.array([said], np.object_))]) for _ in requests]
"""


def test_whichever_way_a_file_is_loaded_it_is_the_one_that_was_there(
    repository: Path, start_server: StartServer
) -> None:
    """By a path with `..`, from a folder with a dash, by the name of the file, and as text, which TorchScript reads"""
    models.write(repository, "faulty", IN_OTHER_WAYS, models.FAULTY_CONFIG)
    version = repository / "faulty" / "1"
    files = {
        version.parent / "common" / "shared.py": "def word():\n    return '{}'\n",
        version / "with-dash" / "dashed.py": "WORD = '{}'\n",
        version / "named.py": "WORD = '{}'\n",
    }

    def write(word: str) -> None:
        for file, text in files.items():
            file.parent.mkdir(exist_ok=True)
            file.write_text(text.format(word))

    write("old")
    server = start_server(repository)
    client = client_of(server)
    assert say(client, "?") == "old old old old"
    write("new")
    with pytest.raises(InferenceServerException, match="exited with code 3"):
        say(client, "exit")
    assert say(client, "?") == "old old old old"
