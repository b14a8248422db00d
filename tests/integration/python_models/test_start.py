"""Python models that cannot start: what the log and the reason say"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from runners import Engine, EngineOptions
from tests.integration.python_models import models

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer

INITIALIZING: Final = """
class TritonPythonModel:
    def initialize(self, args):
        BODY

    def execute(self, requests):
        return []
"""


def write(repository: Path, source: str) -> Path:
    models.write(repository, "m", source, models.FAULTY_CONFIG)
    return repository / "m" / "1" / "model.py"


def why(repository: Path, timeout: str = "30") -> str:
    """The reason why `m` is not served"""
    options = EngineOptions(exit_on_error=False, backend_config={"python": {"stub-timeout-seconds": timeout}})
    with Engine(repository, options=options) as engine:
        return str(engine.failures["m"])


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("VALUE = 1\n", "TritonModelException: '{file}' has no class TritonPythonModel"),
        (
            "import nothing_like_this\n",
            "ModuleNotFoundError: No module named 'nothing_like_this'\n\nAt:\n  {file}(1): <module>\n",
        ),
        ("class TritonPythonModel\n", "SyntaxError: expected ':' (model.py, line 1)"),
        ("x = '\ud800'\n", "SyntaxError: "),
        (
            INITIALIZING.replace("BODY", 'raise OSError("no weights")'),
            "OSError: no weights\n\nAt:\n  {file}(4): initialize\n",
        ),
        (INITIALIZING.replace("BODY", "import sys; sys.exit('leaving')"), "SystemExit: leaving"),
        (INITIALIZING.replace("BODY", "import os; os._exit(5)"), "m_0 did not become ready: it exited with code 5"),
        (
            INITIALIZING.replace("BODY", "print('the end', flush=True); import os; os.abort()"),
            "m_0 did not become ready: it was killed by signal 6 (SIGABRT: it aborted); the last it printed:\nthe end",
        ),
        (INITIALIZING.replace("self, args", "self"), "TypeError: TritonPythonModel.initialize() takes 1 positional"),
        (INITIALIZING.replace("def initialize(self, args):", "def __init__(self, needed):"), "TypeError: "),
        (
            INITIALIZING.replace("BODY", "raise BaseException('all of it')"),
            "BaseException: all of it\n\nAt:\n  {file}(4)",
        ),
        (INITIALIZING.replace("BODY", "raise KeyboardInterrupt"), "KeyboardInterrupt: <EMPTY MESSAGE>\n\nAt:\n"),
        ("raise GeneratorExit('at once')\n", "GeneratorExit: at once\n\nAt:\n  {file}(1): <module>\n"),
    ],
)
def test_the_reason_names_what_went_wrong(repository: Path, source: str, text: str) -> None:
    models.write(repository, "m", "", models.FAULTY_CONFIG)
    file = repository / "m" / "1" / "model.py"
    file.write_bytes(source.encode("utf-8", "surrogatepass"))
    reason = why(repository)
    assert text.replace("{file}", str(file)) in reason


def test_the_traceback_is_whole_and_ends_in_the_file_of_the_model(repository: Path, start_server: StartServer) -> None:
    file = write(repository, INITIALIZING.replace("BODY", "self.deeper()\n\n    def deeper(self):\n        1 / 0"))
    server = start_server(repository, "--exit-on-error=false", ready=False)
    server.log.wait_for(re.compile("failed to load 'm' version 1: ZeroDivisionError"), 20)
    lines = [line.partition("m_0: ")[2] for line in server.log.lines if "m_0: " in line]
    assert lines == [
        "Traceback (most recent call last):",
        f'  File "{file}", line 4, in initialize',
        "    self.deeper()",
        f'  File "{file}", line 7, in deeper',
        "    1 / 0",
        "    ~~^~~",
        "ZeroDivisionError: division by zero",
    ]


@pytest.mark.parametrize(
    "source",
    ["import signal\nsignal.pause()\n", INITIALIZING.replace("BODY", "import signal; signal.pause()")],
    ids=["import", "initialize"],
)
def test_one_that_takes_longer_than_it_may_is_ended(repository: Path, source: str) -> None:
    write(repository, source)
    text = "m_0 did not become ready: it was not ready within 1 s; it was killed by signal 9 (SIGKILL)"
    assert why(repository, "1").endswith(text)


def test_other_models_are_served_beside_it(repository: Path) -> None:
    write(repository, "import nothing_like_this\n")
    models.write(repository, "add_sub", models.ADD_SUB, models.ADD_SUB_CONFIG)
    with Engine(repository, options=EngineOptions(exit_on_error=False)) as engine:
        states = {model.name: model.state for model in engine.models()}
    assert states == {"add_sub": "READY", "m": "UNAVAILABLE"}
