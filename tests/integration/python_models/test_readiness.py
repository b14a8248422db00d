"""What a Python model says of its own readiness"""

import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tritonclient.http import InferInput

from tests.conftest import StartServer
from tests.integration.python_models import models
from tests.integration.python_models.test_faults import workers_of
from tests.integration.python_models.test_models import client_of
from tests.serving import Server
from tests.waiting import eventually

pytestmark = pytest.mark.clock

MOODS = """
import time
from pathlib import Path

import triton_python_backend_utils as pb_utils

MOOD = Path(__file__).with_name("mood")


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse(request.inputs()) for request in requests]

    {prefix}def is_ready(self):
        mood = MOOD.read_text()
        if mood == "bad":
            raise RuntimeError("a bad mood")
        if mood == "slow":
            time.sleep(6)
        if mood == "stuck":
            time.sleep(600)
        return mood != "low"
"""
SLOW_SECOND = MOODS.replace(
    "    {prefix}def is_ready(self):",
    """    def initialize(self, args):
        self.delay = 0.5 if args["model_instance_name"].endswith("_1") else 0

    def is_ready(self):""",
).replace("        return mood", "        time.sleep(self.delay)\n        return mood")
CONFIG = """
backend: "python"
input {{ name: "{name}" data_type: TYPE_FP32 dims: 1 }}
output {{ name: "{name}" data_type: TYPE_FP32 dims: 1 }}
instance_group {{ count: {count} kind: KIND_CPU }}
"""
AROUND = """
platform: "ensemble"
input { name: "VALUE" data_type: TYPE_FP32 dims: 1 }
output { name: "RESULT" data_type: TYPE_FP32 dims: 1 }
ensemble_scheduling { step { model_name: "moods" model_version: -1
  input_map { key: "VALUE" value: "VALUE" } output_map { key: "VALUE" value: "RESULT" } } }
"""


def started(repository: Path, start_server: StartServer, prefix: str = "", count: int = 1) -> Server:
    models.write(repository, "moods", MOODS.replace("{prefix}", prefix), CONFIG.format(name="VALUE", count=count))
    feel(repository, "well")
    (repository / "around" / "1").mkdir(parents=True)
    (repository / "around" / "config.pbtxt").write_text(AROUND, encoding="utf-8")
    return start_server(repository)


def feel(repository: Path, mood: str) -> None:
    (repository / "moods" / "1" / "mood").write_text(mood, encoding="utf-8")


def readiness(server: Server, model: str = "moods") -> int:
    return server.get(f"/v2/models/{model}/ready").status


@pytest.mark.parametrize("prefix", ["", "async "])
@pytest.mark.parametrize("count", [1, 2])
def test_a_model_is_as_ready_as_it_says(prefix: str, count: int, repository: Path, start_server: StartServer) -> None:
    server = started(repository, start_server, prefix, count)
    for mood, status in (("well", 200), ("low", 400), ("bad", 400), ("well", 200)):
        feel(repository, mood)
        assert (readiness(server), readiness(server, "around")) == (status, status), mood
        assert server.get("/v2/health/ready").status == 200, "the server asks no model"
    server.log.wait_for(re.compile("a bad mood"), 5)


ASKING = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        said = [np.array([pb_utils.is_model_ready("moods")], np.float32) for _ in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("VALUE", one)]) for one in said]
"""


def test_another_model_hears_what_a_model_says(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "asking", ASKING, CONFIG.format(name="VALUE", count=1))
    server = started(repository, start_server)
    one = InferInput("VALUE", [1], "FP32")
    one.set_data_from_numpy(np.zeros(1, np.float32))
    for mood, said in (("well", 1), ("low", 0), ("bad", 0), ("well", 1)):
        feel(repository, mood)
        assert client_of(server).infer("asking", [one]).as_numpy("VALUE").tolist() == [said], mood


def test_an_answer_to_an_earlier_question_answers_no_later_one(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "moods", SLOW_SECOND, CONFIG.format(name="VALUE", count=2))
    feel(repository, "well")
    server = start_server(repository)
    for _ in range(3):
        feel(repository, "well")
        assert readiness(server) == 200, "the first instance has said it; the second one is about to"
        time.sleep(0.1)
        feel(repository, "low")
        assert readiness(server) == 400


def test_one_that_does_not_say_it_in_time_is_not_ready(repository: Path, start_server: StartServer) -> None:
    server = started(repository, start_server)
    feel(repository, "slow")
    began = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: readiness(server), range(8))) == [400] * 8
    assert 5 <= time.monotonic() - began < 9
    feel(repository, "well")
    eventually(lambda: readiness(server) == 200, "it has come to itself", 10)


def test_nobody_waits_for_a_process_that_has_gone(repository: Path, start_server: StartServer) -> None:
    server = started(repository, start_server)
    feel(repository, "slow")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(readiness, server)
        time.sleep(0.5)
        began = time.monotonic()
        os.kill(workers_of(server)[0], signal.SIGKILL)
        assert asked.result() == 400
    assert time.monotonic() - began < 3
    feel(repository, "well")
    eventually(lambda: readiness(server) == 200, "the next process is there", 20)


def test_one_that_never_says_it_is_started_again(repository: Path, start_server: StartServer) -> None:
    patience = 'parameters { key: "kushi.execute_timeout" value { string_value: "1" } }'
    models.write(repository, "moods", MOODS.replace("{prefix}", ""), CONFIG.format(name="VALUE", count=1) + patience)
    feel(repository, "stuck")
    server = start_server(repository)
    # a model that has time for a batch has it for this, too
    assert readiness(server) == 400
    feel(repository, "well")
    server.log.wait_for(re.compile("is started again: its is_ready does not come back"), 20)
    eventually(lambda: readiness(server) == 200, "the next process is there", 20)
