"""The processes of Python models: what they leave behind, and what cannot hold up the server"""

import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tritonclient.utils import InferenceServerException

from tests.conftest import StartServer
from tests.integration.python_models import models
from tests.integration.python_models.test_faults import say, workers_of
from tests.integration.python_models.test_models import client_of
from tests.processes import lives
from tests.serving import Server
from tests.waiting import eventually

pytestmark = pytest.mark.clock

ENDLESS = models.FAULTY_CONFIG.replace('"1"', '"1000"')
"""As long as a test of its requests"""


def hang(server: Server) -> str:
    with client_of(server) as client:
        return say(client, "hang")


@pytest.mark.parametrize("end", ["killed", "exits", "hangs", "is unloaded", "server stops"])
def test_the_children_of_a_worker_end_with_it(end: str, repository: Path, start_server: StartServer) -> None:
    models.write(repository, "faulty", models.FAULTY, models.FAULTY_CONFIG)
    server = start_server(repository, "--model-control-mode=explicit", "--load-model=*")
    client = client_of(server)
    child = int(say(client, "child"))
    assert lives(child)
    if end == "killed":
        os.kill(workers_of(server)[0], signal.SIGKILL)
    elif end == "exits":
        with pytest.raises(InferenceServerException, match="exited with code 3"):
            say(client, "exit")
    elif end == "hangs":
        with pytest.raises(InferenceServerException, match="more than 1 s"):
            say(client, "hang")
    elif end == "is unloaded":
        client.unload_model("faulty")
    else:
        assert server.stop() == 0
    eventually(lambda: not lives(child), "the child has ended", 15)


def test_strings_that_do_not_fit_their_shape_are_an_error_of_their_request(
    repository: Path, start_server: StartServer
) -> None:
    models.write(repository, "faulty", models.FAULTY, models.FAULTY_CONFIG)
    server = start_server(repository)
    client = client_of(server)
    worker = workers_of(server)
    with pytest.raises(InferenceServerException) as raised:
        say(client, "broken strings")
    assert "output 'SAID' of model 'faulty'" in raised.value.message()
    assert raised.value.status() == "500"
    assert say(client, "hello") == "hello"
    assert workers_of(server) == worker, "its process goes on"


def test_a_storm_of_log_lines_is_cut_short_and_said_so(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "faulty", models.FAULTY, models.FAULTY_CONFIG)
    server = start_server(repository)
    client = client_of(server)
    for word in ("log", "print"):
        assert say(client, f"{word} storm") == f"{word} storm"
        server.log.wait_for(re.compile(rf"faulty_0: {word} 0$"), 10)
        server.log.wait_for(re.compile(r"faulty_0: \d+ lines in a second were left out"), 10)
        assert not any(line.endswith(f"faulty_0: {word} 4999") for line in server.log.lines)
        server.log.lines.clear()


MEETING = """
import time
from pathlib import Path


class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_name"]

    def execute(self, requests):
        return []

    def finalize(self):
        here = Path(__file__).parents[2]
        (here / f"{self.name}.ends").touch()
        while len(list(here.glob("*.ends"))) < 3:
            time.sleep(0.01)
        print("has met the others", flush=True)
"""


def test_models_are_finalized_at_the_same_time_when_the_server_ends(
    repository: Path, start_server: StartServer
) -> None:
    names = ["one", "two", "three"]
    for name in names:
        models.write(repository, name, MEETING, models.COUNTED_CONFIG)
    server = start_server(repository)
    assert server.stop() == 0
    for name in names:
        server.log.wait_for(re.compile(f"{name}_0: has met the others"), 10)


def test_a_hung_model_ends_with_the_server(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "faulty", models.FAULTY, ENDLESS)
    server = start_server(repository, "--exit-timeout-secs=1")
    (worker,) = workers_of(server)
    with ThreadPoolExecutor(1) as one:
        asked = one.submit(hang, server)
        server.log.wait_for(re.compile("faulty_0: hangs"), 10)
        begun = time.monotonic()
        server.stop()
        assert time.monotonic() - begun < 10
        with pytest.raises(InferenceServerException, match="is being stopped"):
            asked.result(10)
    assert not lives(worker)


def test_a_hung_model_can_be_unloaded_and_loaded_again(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "faulty", models.FAULTY, ENDLESS)
    server = start_server(repository, "--model-control-mode=explicit", "--load-model=*")
    client = client_of(server)
    (worker,) = workers_of(server)
    with ThreadPoolExecutor(1) as one:
        asked = one.submit(hang, server)
        server.log.wait_for(re.compile("faulty_0: hangs"), 10)
        client.load_model("faulty")
        assert say(client, "hello") == "hello", "the new one serves at once"
        with pytest.raises(InferenceServerException, match="is being stopped"):
            asked.result(60)
    eventually(lambda: not lives(worker), "the old process has ended", 15)
    server.log.wait_for(re.compile("successfully unloaded 'faulty' version 1"), 15)
    assert say(client, "hello") == "hello"


@pytest.mark.parametrize("again", [False, True], ids=["its time is over", "it is told twice"])
def test_what_models_have_started_ends_with_a_server_that_does_not_wait(
    again: bool, repository: Path, start_server: StartServer
) -> None:
    models.write(repository, "faulty", models.FAULTY, ENDLESS)
    server = start_server(repository, f"--exit-timeout-secs={60 if again else 1}")
    child = int(say(client_of(server), "child"))
    with ThreadPoolExecutor(1) as one:
        asked = one.submit(hang, server)
        server.log.wait_for(re.compile("faulty_0: hangs"), 10)
        server.terminate()
        if again:
            server.log.wait_for(re.compile("Waiting for in-flight requests"), 10)
            server.terminate()
        server.wait()
        assert asked.exception(10) is not None
    eventually(lambda: not lives(child), "the child has ended", 15)
