"""Streams of Python models, taken in the process of the engine"""

import time
from pathlib import Path

import numpy as np
import pytest

from runners import Engine
from runners.errors import DeadlineExceeded, EngineFailed, InvalidInput
from tests.integration.python_models import models
from tests.serving import eventually

WINDOW = 64

ENDLESS = """
import pathlib

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        (request,) = requests
        sender = request.get_response_sender()
        file = pathlib.Path(__file__).with_name("sent")
        number = 0
        try:
            while True:
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("NUMBER", np.array([number], np.int32))]))
                number += 1
                file.write_text(str(number))
        except pb_utils.TritonModelException as error:
            file.write_text(f"ended: {error}")
"""


def test_responses_are_taken_one_by_one(repository: Path) -> None:
    models.write(repository, "counting", models.COUNTING, models.COUNTING_CONFIG)
    with Engine(repository) as engine:
        answers = engine.stream("counting", {"COUNT": np.array([300], np.int32)}, request_id="mine")
        first = next(answers)
        assert (first["NUMBER"].tolist(), first.request_id, first.model_name) == ([0], "mine", "counting")
        assert [answer["NUMBER"].item() for answer in answers] == list(range(1, 300))
        assert list(answers) == []
        assert list(engine.stream("counting", np.array([0], np.int32))) == []


def test_a_model_with_one_response_is_a_stream_of_one(repository: Path) -> None:
    models.write(repository, "add_sub", models.ADD_SUB, models.ADD_SUB_CONFIG)
    one = np.ones((1, 2), np.float32)
    with Engine(repository) as engine:
        (answer,) = engine.stream("add_sub", one, one, outputs=["OUTPUT0"])
        assert dict(answer)["OUTPUT0"].tolist() == [[2, 2]]
        with pytest.raises(InvalidInput, match="NOTHING"):
            engine.stream("add_sub", one, one, outputs=["NOTHING"])


def test_an_error_in_a_stream_is_raised_and_ends_it(repository: Path) -> None:
    models.write(repository, "failing", models.FAILING_STREAM, models.COUNTING_CONFIG)
    with Engine(repository) as engine:
        answers = engine.stream("failing", np.array([0], np.int32))
        with pytest.raises(EngineFailed, match="nothing to count"):
            next(answers)
        assert list(answers) == []


def test_one_instance_has_many_streams_open(repository: Path) -> None:
    models.write(repository, "counting", models.COUNTING, models.COUNTING_CONFIG)
    with Engine(repository) as engine:
        # longer than what is sent without being taken
        streams = [engine.stream("counting", np.array([300], np.int32)) for _ in range(40)]
        assert [next(stream)["NUMBER"].item() for stream in streams] == [0] * 40
        assert [len(list(stream)) for stream in streams] == [299] * 40


@pytest.mark.parametrize("end", ["closed", "dropped"])
def test_a_model_waits_for_a_slow_reader_and_hears_when_nobody_reads(repository: Path, end: str) -> None:
    models.write(repository, "endless", ENDLESS, models.COUNTING_CONFIG)
    sent = repository / "endless" / "1" / "sent"
    with Engine(repository) as engine:
        answers = engine.stream("endless", np.array([0], np.int32))
        assert next(answers)["NUMBER"].item() == 0
        eventually(lambda: sent.exists() and int(sent.read_text() or 0) >= WINDOW, "a full window")
        time.sleep(0.2)
        assert int(sent.read_text()) < 4 * WINDOW
        if end == "closed":
            answers.close()
            assert list(answers) == []
        else:
            del answers
        eventually(lambda: sent.read_text().startswith("ended: "), "the end of the stream")


def test_the_deadline_ends_a_stream(repository: Path) -> None:
    models.write(repository, "endless", ENDLESS, models.COUNTING_CONFIG)
    with Engine(repository) as engine:
        answers = engine.stream("endless", np.array([0], np.int32), deadline=0.3)
        with pytest.raises(DeadlineExceeded):
            for _ in answers:
                pass
