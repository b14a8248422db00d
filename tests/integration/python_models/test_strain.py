"""Python models that do what nobody expects of them, and what happens to them while they work"""

import json
import os
import random
import re
import signal
import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tests.conftest import StartServer
from tests.integration.python_models import models
from tests.integration.python_models.test_faults import workers_of
from tests.integration.python_models.test_models import client_of, pair, tensor
from tests.processes import lives
from tests.raw_http import Connection
from tests.serving import Server, labelled
from tests.waiting import eventually

pytestmark = pytest.mark.clock

ODD = """
import os
import pathlib
import sys
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

HERE = pathlib.Path(__file__).parent


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        what = pb_utils.get_input_tensor_by_name(request, "WHAT").as_numpy()[0].decode()
        said = getattr(self, what, lambda: what)()
        return pb_utils.InferenceResponse([pb_utils.Tensor("SAID", np.array([said], np.object_))])

    def storm(self):
        lines = ("x" * 99 + "\\n") * 10_000
        for _ in range(100):
            sys.stdout.write(lines)
        return "printed"

    def wait(self):
        print("waits")
        while not (HERE / "go").exists():
            time.sleep(0.01)
        return str(os.getpid())

    def fork_and_wait(self):
        child = os.fork()
        if child == 0:
            os._exit(7)
        return str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    def fork_and_return(self):
        child = os.fork()
        if child == 0:
            return "a child"
        return f"the parent of a child that ended with {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}"

    def fork_and_log(self):
        child = os.fork()
        if child == 0:
            for number in range(100):
                pb_utils.Logger.log_info(f"a child {number}")
            os._exit(0)
        for number in range(100):
            pb_utils.Logger.log_info(f"a parent {number}")
        return str(os.waitpid(child, 0)[1])

    def pid(self):
        return str(os.getpid())

    def finalize(self):
        if (HERE / "hang").exists():
            threading.Event().wait()
"""

ODD_CONFIG = """
backend: "python"
input [ { name: "WHAT" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "SAID" data_type: TYPE_STRING dims: [ 1 ] } ]
"""

STREAMING = """
import threading

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            count = int(pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy()[0])
            threading.Thread(target=self.count, args=(request.get_response_sender(), count)).start()

    def count(self, sender, count):
        try:
            for number in range(count):
                self.number = number
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("NUMBER", np.array([number], np.int32))]))
        except pb_utils.TritonModelException as error:
            print(f"after {number}: {error}")
        finally:
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def ask(server: Server, what: str, model: str = "odd") -> str:
    word = np.array([what.encode()], np.object_)
    with client_of(server) as client:
        answer: bytes = client.infer(model, [tensor("WHAT", word)]).as_numpy("SAID")[0]
        return answer.decode()


@pytest.mark.alone
def test_a_storm_of_print_holds_up_nobody(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "odd", ODD, ODD_CONFIG)
    models.write(repository, "quiet", ODD, ODD_CONFIG)
    server = start_server(repository)
    assert ask(server, "storm") == "printed"
    memory, lines = server.memory_kib(), len(server.log.lines)
    with ThreadPoolExecutor(1) as one:
        printed = one.submit(ask, server, "storm")
        while not printed.done():
            assert ask(server, "hello", "quiet") == "hello"
        assert printed.result() == "printed"
    server.log.wait_for(re.compile(r"odd_0: \d+ lines in a second were left out"), 10)
    assert len(server.log.lines) - lines < 100_000
    assert server.memory_kib() - memory < 32 << 10


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("fork_and_wait", "7"),
        ("fork_and_return", "the parent of a child that ended with 0"),
        ("fork_and_log", "0"),
    ],
)
def test_a_model_may_fork(what: str, said: str, repository: Path, start_server: StartServer) -> None:
    models.write(repository, "odd", ODD, ODD_CONFIG)
    server = start_server(repository)
    worker = ask(server, "pid")
    for _ in range(5):
        assert ask(server, what) == said
        assert ask(server, "hello") == "hello"
    assert ask(server, "pid") == worker
    if what == "fork_and_log":
        for who in ("child", "parent"):
            server.log.wait_for(re.compile(rf"odd_0: a {who} 99$"), 10)


class Load:
    """Clients that ask without a pause, and count what they hear"""

    def __init__(self, server: Server, askers: int = 4) -> None:
        self._server = server
        self._stop = threading.Event()
        self.outcomes: Counter[str] = Counter()
        self._threads = [threading.Thread(target=self._ask) for _ in range(askers)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        one = np.ones((1, 4), np.float32)
        with client_of(self._server) as client:
            while not self._stop.is_set():
                try:
                    assert client.infer("add_sub", pair(one, one)).as_numpy("OUTPUT0").tolist() == [[2] * 4]
                    self.outcomes[""] += 1
                except InferenceServerException as error:
                    self.outcomes[error.message()] += 1

    def go_on(self, answers: int = 50) -> None:
        before = self.outcomes[""]
        eventually(lambda: self.outcomes[""] >= before + answers, "answers of a worker")

    def end(self) -> Counter[str]:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in self._threads), "a request has no end"
        return self.outcomes


def test_a_worker_that_is_stopped_and_goes_on_loses_nothing(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "add_sub", models.ADD_SUB, models.ADD_SUB_CONFIG)
    server = start_server(repository)
    # more than two batches can hold, so that some wait whatever the worker has
    load = Load(server, 17)
    (worker,) = workers_of(server)
    for _ in range(5):
        load.go_on()
        os.kill(worker, signal.SIGSTOP)
        eventually(lambda: pending(server) >= 1, "requests wait")
        os.kill(worker, signal.SIGCONT)
    load.go_on()
    assert set(load.end()) == {""}
    assert workers_of(server) == [worker]


def pending(server: Server) -> float:
    return labelled(server.metrics(), "nv_inference_pending_request_count", model="add_sub", version="1")


def test_each_request_has_one_end_however_often_workers_are_killed(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "add_sub", models.ADD_SUB, models.ADD_SUB_CONFIG + "instance_group { count: 2 }")
    server = start_server(repository)
    load = Load(server, 6)
    chance = random.Random(7)
    pause = threading.Event()
    for _ in range(20):
        load.go_on(5)
        pause.wait(chance.random() * 0.1)
        for worker in workers_of(server)[: chance.randint(1, 2)]:
            # it may have ended by itself
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
    load.go_on()
    outcomes = load.end()
    killed = re.compile(r"add_sub_0_\d (ended while it executed|did not become ready): it was killed by signal 9")
    assert [error for error in outcomes if error and not killed.match(error)] == []
    counted = server.metrics()
    failed = sum(value for series, value in counted.items() if series.startswith("nv_inference_request_failure{"))
    succeeded = labelled(counted, "nv_inference_request_success", model="add_sub", version="1")
    assert (succeeded, failed) == (outcomes[""], outcomes.total() - outcomes[""])


def test_a_reload_lets_a_batch_end_where_it_began(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "odd", ODD, ODD_CONFIG)
    server = start_server(repository, "--model-control-mode=explicit", "--load-model=*")
    worker = ask(server, "pid")
    with ThreadPoolExecutor(1) as one:
        asked = one.submit(ask, server, "wait")
        server.log.wait_for(re.compile("odd_0: waits"), 10)
        client_of(server).load_model("odd")
        assert ask(server, "pid") != worker
        assert not asked.done()
        (repository / "odd" / "1" / "go").touch()
        assert asked.result(10) == worker
    eventually(lambda: not lives(int(worker)), "the old process has ended", 15)


def test_a_model_that_hangs_in_finalize_is_ended(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "odd", ODD, ODD_CONFIG)
    (repository / "odd" / "1" / "hang").touch()
    server = start_server(repository, "--model-control-mode=explicit", "--load-model=*")
    worker = int(ask(server, "pid"))
    client_of(server).unload_model("odd")
    server.log.wait_for(re.compile("successfully unloaded 'odd' version 1"), 20)
    assert not lives(worker)


def stream(server: Server, count: int) -> Connection:
    connection = server.connect()
    body = json.dumps({"COUNT": count}).encode()
    head = f"POST /v2/models/counting/generate_stream HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.send(head.encode() + body)
    return connection


@pytest.mark.alone
def test_a_reader_that_is_slow_holds_up_its_own_stream_alone(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "counting", STREAMING, models.COUNTING_CONFIG)
    server = start_server(repository)
    assert b'"NUMBER":9,' in server.post("/v2/models/counting/generate_stream", b'{"COUNT": 10}').body
    memory = server.memory_kib()
    with stream(server, 300_000) as slow:
        for _ in range(5):
            assert b'"NUMBER":999,' in server.post("/v2/models/counting/generate_stream", b'{"COUNT": 1000}').body
        assert server.memory_kib() - memory < 32 << 10
        body = bytearray()
        while not body.endswith(b"\r\n0\r\n\r\n"):
            more = slow.socket.recv(1 << 20)
            assert more
            body += more
    numbers = [int(number) for number in re.findall(rb'"NUMBER":(\d+)', body)]
    assert numbers == list(range(300_000)), "it gets all of it, in order"


def test_a_model_hears_of_a_client_that_goes_in_the_midst_of_a_stream(
    repository: Path, start_server: StartServer
) -> None:
    models.write(repository, "counting", STREAMING, models.COUNTING_CONFIG)
    server = start_server(repository)
    for _ in range(3):
        with stream(server, 1_000_000_000) as gone:
            eventually(gone.has_answer, "the first answers")
        server.log.wait_for(re.compile(r"counting_0: after \d+: .*Nobody waits for it any more"), 20)
        server.log.lines.clear()
    assert b'"NUMBER":9,' in server.post("/v2/models/counting/generate_stream", b'{"COUNT": 10}').body


def test_nothing_is_left_of_a_server_that_is_killed_while_models_execute(
    repository: Path, start_server: StartServer
) -> None:
    models.write(repository, "odd", ODD, ODD_CONFIG + "instance_group { count: 2 }")
    server = start_server(repository)
    workers = workers_of(server)
    with ThreadPoolExecutor(2) as two:
        asked: list[Future[str]] = [two.submit(ask, server, "wait") for _ in range(2)]
        eventually(lambda: sum("waits" in line for line in server.log.lines) == 2, "both execute")
        for process in (server.pid, *workers):
            assert "/dev/shm" not in Path(f"/proc/{process}/maps").read_text(), "what they share goes with them"
        server.kill()
        for one in asked:
            assert one.exception(30)
    eventually(lambda: not any(map(lives, workers)), "the workers have ended", 5)


def test_many_instances_start_and_answer(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "odd", ODD, ODD_CONFIG + "instance_group { count: 64 }")
    server = start_server(repository)
    assert len(workers_of(server)) == 64

    def waits(_: int) -> str:
        return ask(server, "wait")

    with ThreadPoolExecutor(64) as pool:
        answers = pool.map(waits, range(64))
        eventually(lambda: sum("waits" in line for line in server.log.lines) == 64, "all execute", 60)
        (repository / "odd" / "1" / "go").touch()
        assert len(set(answers)) == 64
    assert server.stop() == 0
