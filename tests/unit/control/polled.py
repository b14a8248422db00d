"""Engines whose repositories are looked at when a test says so"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from runners import Engine, EngineOptions, ModelOptions
from runners.control.poll import Poll
from tests import models
from tests.unit.controlled import rows
from tests.waiting import eventually

__all__ = ["ALL", "COUNTS", "TWICE", "Polled", "answer", "polled", "write_twice", "write_version"]

ALL = 'version_policy { all {} } backend: "onnxruntime"'
TWICE = """
platform: "ensemble"
input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [ -1, -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ -1, -1 ] } ]
ensemble_scheduling { step [ {
  model_name: "%s" model_version: -1
  input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "OUTPUT0" }
} ] }
"""


COUNTS = """
from pathlib import Path

class TritonPythonModel:
    def initialize(self, args):
        with Path(__file__).with_name("loads").open("a") as file:
            file.write("x")
"""


class Polled:
    """An engine whose repositories are looked at when a test says so"""

    def __init__(self, *repositories: Path, exit_on_error: bool = True) -> None:
        options = EngineOptions(
            exit_on_error=exit_on_error, models=ModelOptions(control="poll", poll_seconds=0, load_threads=2)
        )
        self.engine = Engine(*repositories, options=options)
        self.now = 0.0
        poll = self.engine._control._poll
        assert poll is not None
        self.poll: Poll = poll
        self.poll._clock = lambda: self.now
        self.poll._seconds = 1.0

    def look(self) -> None:
        """Once, and what follows from it is done"""
        self.poll.look(self.engine._control)
        eventually(lambda: not self.poll.begin_steps(self.engine._control), "all is done")

    def look_twice(self) -> None:
        """A change counts when it stands still"""
        self.look()
        self.look()

    def answer(self, model: str = "m", version: int | str = "") -> int:
        return answer(self.engine, model, version)

    def served(self) -> list[tuple[str, str]]:
        return [row[:2] for row in rows(self.engine) if row[2] == "READY"]

    def counts(self) -> dict[str, int]:
        """Requests that each version has answered"""
        stats = self.engine.statistics()["model_stats"]
        return {f"{one['name']}:{one['version']}": one["inference_stats"]["success"]["count"] for one in stats}


def answer(engine: Engine, model: str = "m", version: int | str = "") -> int:
    result = engine.infer(model, {"INPUT0": np.zeros((1, 1), np.int32)}, model_version=version)
    return int(result["OUTPUT0"][0, 0])


@contextmanager
def polled(*repositories: Path, exit_on_error: bool = True) -> Iterator[Polled]:
    one = Polled(*repositories, exit_on_error=exit_on_error)
    with one.engine:
        yield one


def write_version(repository: Path, number: int, constant: int, model: str = "m") -> Path:
    folder = repository / model / str(number)
    folder.mkdir(exist_ok=True)
    (folder / "model.onnx").write_bytes(models.plus_constant(constant).SerializeToString())
    return folder


def write_twice(repository: Path, name: str, step: str) -> None:
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(TWICE % step)
