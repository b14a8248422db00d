"""What becomes of requests when a Python model's process fails"""

import os
import re
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient as GrpcClient
from tritonclient.http import InferenceServerClient
from tritonclient.utils import InferenceServerException

from runners import Client
from runners.errors import EngineFailed
from tests.conftest import StartServer
from tests.integration.grpc_doors import port_of
from tests.integration.python_models import models
from tests.integration.python_models.test_models import client_of, pair, tensor
from tests.integration.test_grpc import array_input
from tests.processes import children, lives
from tests.serving import Server
from tests.waiting import eventually, settles


def say(client: InferenceServerClient, what: str) -> str:
    word = np.array([what.encode()], np.object_)
    answer: bytes = client.infer("faulty", [tensor("WHAT", word)]).as_numpy("SAID")[0]
    return answer.decode()


def workers_of(server: Server) -> list[int]:
    """The processes that the server has started"""
    return children(server.pid)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("segfault", "killed by signal 11 (SIGSEGV: a segmentation fault); the last it printed:\nthe last words"),
        ("exit", "faulty_0 ended while it executed: it exited with code 3"),
        ("sys.exit", "faulty_0 ended while it executed: it exited with code 4"),
        ("hang", "faulty_0 ended while it executed: it has executed a batch for more than 1 s"),
        ("garbage", "faulty_0 ended while it executed: it wrote what makes no sense"),
        ("closed", "faulty_0 ended while it executed"),
    ],
)
def test_a_worker_that_fails_fails_its_request_and_is_started_again(
    fault: str, text: str, repository: Path, start_server: StartServer
) -> None:
    models.write(repository, "faulty", models.FAULTY, models.FAULTY_CONFIG)
    client = client_of(start_server(repository))
    assert say(client, "hello") == "hello"
    with pytest.raises(InferenceServerException) as raised:
        say(client, fault)
    assert text in raised.value.message()
    assert raised.value.status() == "500"
    assert say(client, "hello again") == "hello again"


KEPT = """
import atexit
import concurrent.futures
import sys
import threading

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        KEEP

    def execute(self, requests):
        what = [pb_utils.get_input_tensor_by_name(request, "WHAT") for request in requests]
        if what[0].as_numpy()[0] == b"end":
            sys.exit(4)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SAID", one.as_numpy())]) for one in what]
"""
KEEPS = {
    "thread": "threading.Thread(target=threading.Event().wait).start()",
    "pool": "concurrent.futures.ThreadPoolExecutor().submit(threading.Event().wait)",
    "atexit": "atexit.register(threading.Event().wait)",
}


@pytest.mark.parametrize("keep", KEEPS)
def test_a_process_that_something_keeps_from_its_end_is_ended(
    keep: str, repository: Path, start_server: StartServer
) -> None:
    config = models.FAULTY_CONFIG[: models.FAULTY_CONFIG.index("parameters")]
    models.write(repository, "faulty", KEPT.replace("KEEP", KEEPS[keep]), config)
    client = client_of(start_server(repository))
    assert say(client, "hello") == "hello"
    with pytest.raises(InferenceServerException, match="faulty_0 ended while it executed"):
        say(client, "end")
    assert say(client, "hello") == "hello"


def test_the_error_of_a_request_leaves_out_what_was_printed_at_the_start(
    repository: Path, start_server: StartServer
) -> None:
    # it is ready once what it says has been heard
    pipe = repository.parent / "pipe"
    os.mkfifo(pipe)
    source = f"""
import pathlib
import sys
print("a library says what it is", file=sys.stderr, flush=True)
pathlib.Path({str(pipe)!r}).read_bytes()
{models.FAULTY}"""
    models.write(repository, "faulty", source, models.FAULTY_CONFIG)
    server = start_server(repository, "--model-control-mode=explicit")
    loading = threading.Thread(target=server.post, args=("/v2/repository/models/faulty/load", b""))
    loading.start()
    server.log.wait_for(re.compile("faulty_0: a library says what it is"), 10)
    pipe.write_bytes(b"")
    loading.join()
    with client_of(server) as client, pytest.raises(InferenceServerException, match="exited with code 3") as raised:
        say(client, "exit")
    assert "the last it printed" not in raised.value.message()


def test_requests_that_end_their_process_make_nobody_else_wait(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "faulty", models.FAULTY, models.FAULTY_CONFIG)
    client = client_of(start_server(repository))
    # with a pause that doubles each time, this would take seven minutes
    for _ in range(20):
        with pytest.raises(InferenceServerException, match="it exited with code 3"):
            say(client, "exit")
    assert say(client, "hello") == "hello"


def test_an_exception_is_an_error_of_its_request_and_whole_in_the_log(
    repository: Path, start_server: StartServer
) -> None:
    models.write(repository, "faulty", models.FAULTY, models.FAULTY_CONFIG)
    server = start_server(repository)
    client = client_of(server)
    with pytest.raises(InferenceServerException, match="ValueError: no such thing"):
        say(client, "raise")
    server.log.wait_for(re.compile(r"faulty_0: ValueError: no such thing$"), 10)
    with pytest.raises(InferenceServerException) as raised:
        say(client, "error")
    assert (raised.value.status(), raised.value.message()) == ("404", "not for you")


WITHOUT_DESCRIPTORS = """
import os
import resource

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.held = []

    def execute(self, requests):
        for held in self.held:
            os.close(held)
        self.held = []
        responses = [self.answer(request) for request in requests]
        if any(b"none" in pb_utils.get_input_tensor_by_name(request, "WHAT").as_numpy() for request in requests):
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            try:
                while True:
                    self.held.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                pass
        return responses

    def answer(self, request):
        said = np.array([b"a" * 1_000_000], np.object_)
        return pb_utils.InferenceResponse([pb_utils.Tensor("SAID", said)])
"""


@pytest.mark.clock
def test_an_answer_that_cannot_be_written_fails_its_request_and_not_its_process(
    repository: Path, start_server: StartServer
) -> None:
    models.write(repository, "faulty", WITHOUT_DESCRIPTORS, models.FAULTY_CONFIG.partition("parameters")[0])
    server = start_server(repository)
    with client_of(server) as client:
        before = workers_of(server)
        with pytest.raises(
            InferenceServerException, match=r"the answer cannot be written: OSError: .*Too many open files"
        ):
            say(client, "none")
        assert len(say(client, "well")) == 1_000_000
        assert workers_of(server) == before


LONG_ERRORS = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        what = pb_utils.get_input_tensor_by_name(request, "WHAT")
        kind = what.as_numpy()[0]
        if kind == b"raised":
            raise ValueError("e" + "é " * 25_000_000)
        if kind == b"given":
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("g" + "é " * 25_000_000))
        return pb_utils.InferenceResponse([pb_utils.Tensor("SAID", what.as_numpy())])
"""


def test_an_error_whose_text_has_fifty_megabytes_is_told_by_its_beginning(
    repository: Path, start_server: StartServer
) -> None:
    models.write(repository, "faulty", LONG_ERRORS, models.FAULTY_CONFIG.partition("parameters")[0])
    path = repository.parent / "local"
    server = start_server(repository, f"--local-socket={path}")
    with (
        Client(f"unix://{path}") as client,
        client_of(server) as over_http,
        GrpcClient(f"127.0.0.1:{port_of(server)}") as over_grpc,
    ):
        for kind, begin in (
            ("raised", "Failed to process the request(s) for model 'faulty_0', message: ValueError: e"),
            ("given", "g"),
        ):
            with pytest.raises(EngineFailed) as told:
                client.infer("faulty", [kind])
            with pytest.raises(InferenceServerException) as raised:
                say(over_http, kind)
            assert raised.value.message() == str(told.value)
            assert str(told.value).startswith(f"{begin}é é é ")
            assert len(str(told.value)) < 33 << 10
            # what clients take of metadata is less
            with pytest.raises(InferenceServerException) as raised:
                over_grpc.infer("faulty", [array_input("WHAT", "BYTES", np.array([kind], np.object_))])
            assert raised.value.status() == "StatusCode.INTERNAL"
            text = raised.value.message()
            assert text.endswith("…")
            assert str(told.value).startswith(text.removesuffix("…"))
            assert len(text.removeprefix(begin)) > 1000
        assert client.infer("faulty", ["well"])["SAID"].tolist() == [b"well"]


def wait_for_answers(outcomes: list[str]) -> None:
    before = len(outcomes)
    eventually(lambda: outcomes[before:].count("") >= 50, "answers of a worker")


@pytest.mark.clock
def test_workers_that_are_killed_under_load_lose_no_request(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "add_sub", models.ADD_SUB, models.ADD_SUB_CONFIG)
    server = start_server(repository)
    one = np.ones((1, 4), np.float32)
    outcomes: list[str] = []
    stop = threading.Event()

    def ask() -> None:
        with client_of(server) as client:
            while not stop.is_set():
                try:
                    assert client.infer("add_sub", pair(one, one)).as_numpy("OUTPUT0").tolist() == [[2] * 4]
                    outcomes.append("")
                except InferenceServerException as error:
                    outcomes.append(error.message())

    askers = [threading.Thread(target=ask) for _ in range(4)]
    for asker in askers:
        asker.start()
    for _ in range(3):
        wait_for_answers(outcomes)
        for worker in workers_of(server):
            os.kill(worker, signal.SIGKILL)
    wait_for_answers(outcomes)
    stop.set()
    for asker in askers:
        asker.join(30)
    assert not any(asker.is_alive() for asker in askers), "a request has no end"
    assert set(outcomes) - {""} <= {
        error for error in outcomes if "add_sub_0 ended while it executed: it was killed by signal 9" in error
    }


@pytest.mark.clock
def test_workers_go_with_a_server_that_is_killed(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "add_sub", models.ADD_SUB, models.ADD_SUB_CONFIG)
    server = start_server(repository)
    workers = workers_of(server)
    assert workers
    server.kill()
    settles(lambda: not any(map(lives, workers)), "they are gone", 5)


def test_a_model_is_finalized_when_the_server_ends(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "add_sub", models.ADD_SUB, models.ADD_SUB_CONFIG)
    server = start_server(repository)
    assert server.stop() == 0
    server.log.wait_for(re.compile(r"add_sub_0: finalized"), 10)


def test_a_model_that_cannot_be_started_again_answers_so_at_once(repository: Path, start_server: StartServer) -> None:
    once = """
import pathlib

mark = pathlib.Path(__file__).with_name("mark")
if mark.exists():
    raise OSError("no more")
mark.touch()
"""
    models.write(repository, "faulty", once + models.FAULTY, models.FAULTY_CONFIG)
    client = client_of(start_server(repository))
    for fault, text in [("exit", "exited with code 3"), ("hello", "OSError: no more"), ("hello", "OSError: no more")]:
        with pytest.raises(InferenceServerException, match=text):
            say(client, fault)


BREAKABLE = """
import os
import pathlib

import numpy as np
import triton_python_backend_utils as pb_utils

if pathlib.Path(__file__).with_name("broken").exists():
    raise OSError("not now")


class TritonPythonModel:
    def execute(self, requests):
        if pb_utils.get_input_tensor_by_name(requests[0], "WHAT").as_numpy()[0] == b"exit":
            os._exit(3)
        answer = pb_utils.Tensor("SAID", np.array([str(os.getpid())], np.object_))
        return [pb_utils.InferenceResponse([answer]) for _ in requests]
"""


def test_an_instance_that_cannot_be_started_again_is_given_nothing_while_another_one_works(
    repository: Path, start_server: StartServer
) -> None:
    models.write(
        repository, "faulty", BREAKABLE, f"{models.FAULTY_CONFIG} instance_group {{ count: 2 kind: KIND_CPU }}"
    )
    broken = repository / "faulty" / "1" / "broken"
    server = start_server(repository)
    client = client_of(server)
    broken.touch()
    with pytest.raises(InferenceServerException, match="exited with code 3"):
        say(client, "exit")
    (works,) = {say(client, "who") for _ in range(100)}
    server.log.wait_for(re.compile("OSError: not now"), 30)
    assert {say(client, "who") for _ in range(100)} == {works}
    assert client.is_model_ready("faulty")
    broken.unlink()
    eventually(lambda: say(client, "who") != works, "its successor takes requests again")


ASKING_WITH_ANOTHER_LENGTH = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        array = np.zeros((1, 64), np.float32)
        inputs = [pb_utils.Tensor("INPUT0", array), pb_utils.Tensor("INPUT1", array.copy())]
        # its bytes do not fill its shape any more
        array.resize(5, refcheck=False)
        asked = pb_utils.InferenceRequest(
            model_name="add_sub", requested_output_names=["OUTPUT0"], inputs=inputs
        ).exec()
        said = np.array([asked.error().message().encode()], np.object_)
        return pb_utils.InferenceResponse([pb_utils.Tensor("SAID", said)])
"""


def test_an_input_of_a_call_that_does_not_fill_its_shape_fails_that_call(
    repository: Path, start_server: StartServer
) -> None:
    models.write(repository, "add_sub", models.ADD_SUB, models.ADD_SUB_CONFIG)
    models.write(repository, "asking", ASKING_WITH_ANOTHER_LENGTH, models.FAULTY_CONFIG)
    server = start_server(repository)
    with client_of(server) as client:
        for _ in range(2):
            said = client.infer("asking", [tensor("WHAT", np.array([b"?"], np.object_))]).as_numpy("SAID")[0]
            assert b"input byte size mismatch for input 'INPUT0' for model 'add_sub'. Expected 256, got 20" in said
    assert "started again" not in server.log.text()
