"""Models that are loaded again when their code changes"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from runners import Engine, EngineOptions, ModelOptions
from runners.errors import KushiError
from tests.integration.python_models import models
from tests.integration.python_models.test_models import client_of, tensor
from tests.serving import Server
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer

VALUE: Final = """
import numpy as np
import triton_python_backend_utils as pb_utils

VALUE = 1


class TritonPythonModel:
    def execute(self, requests):
        answer = np.array([VALUE], np.float32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", answer)]) for _ in requests]
"""
CONFIG: Final = """
backend: "python"
input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""


def write(repository: Path, source: str = VALUE) -> Path:
    models.write(repository, "m", source, CONFIG)
    return repository / "m" / "1" / "model.py"


class Asked:
    """The model `m` of a server"""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._client = client_of(server)

    def value(self) -> float:
        answer = self._client.infer("m", [tensor("X", np.zeros(1, np.float32))]).as_numpy("Y")
        return float(answer[0])

    def becomes(self, value: float) -> None:
        eventually(lambda: self.value() == value, f"the model answers {value}")

    def says(self, pattern: str) -> None:
        self.server.log.wait_for(re.compile(pattern), 20)


def serving(repository: Path, start_server: StartServer, *arguments: str) -> Asked:
    return Asked(start_server(repository, "--reload-python", *arguments))


def test_a_change_is_served_without_a_failure_between(repository: Path, start_server: StartServer) -> None:
    file = write(repository)
    asked = serving(repository, start_server)
    values: list[float] = []
    stop = threading.Event()

    def ask() -> None:
        mine = Asked(asked.server)
        while not stop.is_set():
            values.append(mine.value())

    asking = threading.Thread(target=ask)
    asking.start()
    for value in (2, 3):
        file.write_text(VALUE.replace("VALUE = 1", f"VALUE = {value}"))
        asked.becomes(value)
    stop.set()
    asking.join(30)
    assert sorted(set(values)) in ([1, 2], [1, 2, 3])
    assert values == sorted(values)
    asked.says(rf"'m' is loaded again: '{file}' has changed")


def test_the_old_one_answers_until_the_new_one_is_ready(repository: Path, start_server: StartServer) -> None:
    file, gate = write(repository), repository.parent / "gate"
    asked = serving(repository, start_server)
    begun = gate.with_name("begun")
    waiting = f"""
import pathlib
import threading

pathlib.Path({str(begun)!r}).touch()
while not pathlib.Path({str(gate)!r}).exists():
    threading.Event().wait(0.01)
"""
    file.write_text(waiting + VALUE.replace("VALUE = 1", "VALUE = 2"))
    eventually(begun.exists, "the new one has begun")
    assert asked.value() == 1
    gate.touch()
    asked.becomes(2)


def test_a_broken_file_leaves_the_old_one_and_the_log_says_why(repository: Path, start_server: StartServer) -> None:
    file = write(repository)
    asked = serving(repository, start_server)
    file.write_text("def broken(:\n")
    asked.says(r"failed to load 'm' version 1: .*SyntaxError: invalid syntax \(model.py, line 1\)")
    asked.says("'m' is not loaded again: a version that served goes on as it was")
    assert asked.value() == 1
    assert asked.server.get("/v2/models/m/ready").status == 200
    file.write_text(VALUE.replace("VALUE = 1", "VALUE = 5"))
    asked.becomes(5)


@pytest.mark.parametrize("place", ["m/1/helping.py", "m/helping.py", "m/parts/helping.py"])
def test_what_a_model_imports_from_its_directories_counts(
    repository: Path, start_server: StartServer, place: str
) -> None:
    importing = "parts.helping" if "parts" in place else "helping"
    write(repository, VALUE.replace("VALUE = 1", f"from {importing} import VALUE"))
    helping = repository / place
    helping.parent.mkdir(exist_ok=True)
    helping.write_text("VALUE = 3\n")
    asked = serving(repository, start_server)
    assert asked.value() == 3
    helping.write_text("VALUE = 4\n")
    asked.becomes(4)


def test_a_model_that_failed_at_the_start_is_loaded_when_it_is_mended(
    repository: Path, start_server: StartServer
) -> None:
    file = write(repository, "import nothing_like_this\n")
    server = start_server(repository, "--reload-python", "--exit-on-error=false", ready=False)
    server.log.wait_for(re.compile("No module named 'nothing_like_this'"), 20)
    file.write_text(VALUE)
    eventually(lambda: server.get("/v2/models/m/ready").status == 200, "it is served")
    assert Asked(server).value() == 1


def options(**more: Any) -> EngineOptions:  # noqa: ANN401 - of ModelOptions
    return EngineOptions(models=ModelOptions(reload_python=True, **more))


def ask(engine: Engine) -> float:
    return float(engine.infer("m", np.zeros(1, np.float32))["Y"][0])


def test_a_model_that_was_unloaded_stays_so(repository: Path) -> None:
    file = write(repository)
    models.write(repository, "other", VALUE, CONFIG)
    with Engine(repository, options=options(control="explicit", load=("*",))) as engine:
        engine.unload_model("m")
        file.write_text(VALUE.replace("VALUE = 1", "VALUE = 2"))
        other = repository / "other" / "1" / "model.py"
        other.write_text(VALUE.replace("VALUE = 1", "VALUE = 7"))
        eventually(lambda: float(engine.infer("other", np.zeros(1, np.float32))["Y"][0]) == 7, "the other is loaded")
        with pytest.raises(KushiError):
            ask(engine)


def test_an_engine_closes_while_a_model_is_loaded_again(repository: Path) -> None:
    file, begun = write(repository), repository.parent / "begun"
    with Engine(repository, options=options()) as engine:
        file.write_text(f"import pathlib, signal\npathlib.Path({str(begun)!r}).touch()\nsignal.pause()\n")
        eventually(begun.exists, "the new one has begun")
        assert ask(engine) == 1
    assert not [thread for thread in threading.enumerate() if thread.name == "kushi-reload"]


def test_without_the_flag_nothing_is_loaded_again(repository: Path) -> None:
    write(repository)
    with Engine(repository):
        assert not [thread for thread in threading.enumerate() if thread.name == "kushi-reload"]
