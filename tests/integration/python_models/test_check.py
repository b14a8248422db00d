"""kushi check --load: what comes of every model when it is loaded"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from runners import Engine
from tests.integration.python_models import models
from tests.models import write_add_sub
from tests.serving import ROOT

if TYPE_CHECKING:
    from pathlib import Path

COMPLETING = """
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "Y", "data_type": "TYPE_STRING", "dims": [3]})
        config.set_max_batch_size(4)
        return config

    def execute(self, requests):
        return []
"""

FAILING = """
class TritonPythonModel:
    def initialize(self, args):
        print("a word of the model")
        raise OSError("no weights")
"""


def check(*arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "runners", "check", "--load", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout, done.stderr


def repository_of_all_kinds(repository: Path) -> None:
    models.write(repository, "completing", COMPLETING, 'backend: "python"')
    models.write(repository, "failing", FAILING, models.COUNTING_CONFIG)
    write_add_sub(repository)
    models.write(repository, "wrong", COMPLETING, 'backend: "nothing"')


def test_every_model_has_a_line_that_says_what_came_of_it(repository: Path) -> None:
    repository_of_all_kinds(repository)
    code, output, log = check(str(repository))
    add_sub, completing, failing, wrong = output.splitlines()
    of_add_sub = [f"{name}PUT{number} INT32 [-1, 16]" for name in ("IN", "OUT") for number in (0, 1)]
    assert add_sub == (
        f"add_sub: loads, onnxruntime, version 1: {', '.join(of_add_sub[:2])} → {', '.join(of_add_sub[2:])}"
    )
    assert completing == "completing: loads, python, version 1: X FP32 [-1, -1] → Y BYTES [-1, 3]"
    place = f"{repository}/failing/1/model.py(5): initialize"
    assert failing == f"failing: does not load: OSError: no weights At: {place}"
    assert wrong.startswith(
        f"wrong: does not load: {repository}/wrong/config.pbtxt:1: backend 'nothing' is not supported"
    )
    assert code == 1
    assert "Traceback (most recent call last)" in log, "whole, where nobody reads it by a program"


def test_the_same_is_there_as_json(repository: Path) -> None:
    repository_of_all_kinds(repository)
    code, output, _ = check("--format=json", str(repository))
    rows = {row.pop("name"): row for row in json.loads(output)}
    assert rows["completing"] == {
        "served": True,
        "backend": "python",
        "versions": [1],
        "reason": "",
        "problems": [],
        "notes": [],
        "inputs": ["X FP32 [-1, -1]"],
        "outputs": ["Y BYTES [-1, 3]"],
        "self_test": "",
    }
    assert rows["failing"]["reason"].startswith("OSError: no weights\n\nAt:\n")
    assert (rows["failing"]["served"], rows["failing"]["versions"], code) == (False, [], 1)


def test_settings_of_backends_count(repository: Path) -> None:
    models.write(repository, "slow", "import signal\nsignal.pause()\n", models.COUNTING_CONFIG)
    code, output, _ = check("--backend-config=python,stub-timeout-seconds=1", str(repository))
    assert (
        code,
        output.startswith("slow: does not load: slow_0 did not become ready: it was not ready within 1 s"),
    ) == (
        1,
        True,
    )


def test_a_wrong_setting_of_a_backend_is_refused(repository: Path) -> None:
    code, output, log = check("--backend-config=python,nothing=1", str(repository))
    assert (code, output) == (2, "")
    assert "error: backend config 'python,nothing' is not supported by this version" in log


def test_settings_of_backends_need_models_that_load(repository: Path) -> None:
    command = [sys.executable, "-m", "runners", "check", "--backend-config=python,python-runtime=x", str(repository)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, "kushi check: error: --backend-config needs --load")


def test_a_repository_that_loads_ends_with_zero_and_leaves_no_process(repository: Path) -> None:
    models.write(repository, "add_sub", models.ADD_SUB, models.ADD_SUB_CONFIG)
    code, output, _ = check(str(repository))
    assert code == 0
    with Engine(repository) as engine:
        (row,) = engine.models()
        assert output.startswith(f"{row.name}: loads, python, version {row.version}: INPUT0 FP32 [-1, -1], INPUT1")


@pytest.mark.parametrize("flag", ["--load", "--backend-config"])
def test_the_help_says_so(flag: str) -> None:
    assert flag in check("--help")[1]


def test_names_of_a_model_cannot_speak_to_a_terminal(repository: Path) -> None:
    hostile = COMPLETING.replace('"X"', r'"X\x1b[2J\u202e"')
    models.write(repository, "hostile", hostile, 'backend: "python"')
    _, output, _ = check(str(repository))
    assert "X\\x1b[2J\\u202e FP32" in output
    assert output.rstrip("\n").replace("→", "").isascii()
