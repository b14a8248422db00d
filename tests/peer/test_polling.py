"""What both servers make of a repository that changes while they poll it"""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.peer.pair import Pair, get, infer, post
from tests.raw_http import fetch
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.peer.pair import Request

POLL = ("--model-control-mode=poll", "--repository-poll-secs=1")
CODE = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        tensor = pb_utils.Tensor("Y", np.array([%d], dtype=np.int32))
        return [pb_utils.InferenceResponse([tensor]) for _ in requests]
"""
ALL = "version_policy { all { } }"
CONFIG = f"""
backend: "python"
input [ {{ name: "X" data_type: TYPE_INT32 dims: [ 1 ] }} ]
output [ {{ name: "Y" data_type: TYPE_INT32 dims: [ 1 ] }} ]
{ALL}
"""


class Repository:
    """Each change appears in it as a whole"""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(exist_ok=True)

    def add(self, model: str, *versions: int) -> Path:
        hidden = self.path / f".{model}"
        for number in versions:
            (hidden / str(number)).mkdir(parents=True)
            (hidden / str(number) / "model.py").write_text(CODE % number)
        (hidden / "config.pbtxt").write_text(CONFIG)
        return hidden.rename(self.path / model)

    def version(self, model: str, number: int, code: str) -> None:
        hidden, place = (self.path / model / f"{dot}{number}" for dot in (".", ""))
        hidden.mkdir()
        (hidden / "model.py").write_text(code)
        shutil.rmtree(place, ignore_errors=True)
        hidden.rename(place)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("polled") / "models")


@pytest.fixture(scope="module")
def polling(installed: None, repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    repository.add("m", 1)
    with pytest.MonkeyPatch.context() as environment:
        # Triton takes the bytecode that its models write for a change of theirs
        environment.setenv("PYTHONDONTWRITEBYTECODE", "1")
        with Pair(tmp_path_factory.mktemp("pair"), repository.path, *POLL) as servers:
            yield servers


def ask(model: str, version: int) -> Request:
    request = infer(model, {"X": np.zeros(1, np.int32)})
    return replace(request, path=f"/v2/models/{model}/versions/{version}/infer")


def both_show(pair: Pair, model: str, *rows: str) -> None:
    """In the index: a version, or one that is unloaded"""

    def shown() -> list[set[str]]:
        both = pair.ask(post("/v2/repository/index", {}))
        lists = (answer.json() for answer in (both.triton, both.kushi))
        return [
            {f"{row.get('version')} {row.get('reason') or row.get('state')}" for row in rows if row["name"] == model}
            for rows in lists
        ]

    eventually(lambda: shown() == [{*rows}] * 2, f"both show {rows}")


def both_answer(pair: Pair, model: str, version: int, number: int) -> None:
    def told() -> list[int]:
        both = pair.ask(ask(model, version))
        return [answer.json()["outputs"][0]["data"][0] for answer in (both.triton, both.kushi)]

    eventually(lambda: told() == [number] * 2, f"both answer {number}")


def test_versions_that_go_and_come(polling: Pair, repository: Repository) -> None:
    model = repository.add("versions", 1, 2)
    both_show(polling, "versions", "1 READY", "2 READY")
    for version in (1, 2):
        polling.ask(ask("versions", version)).are_the_same()
    shutil.rmtree(model / "1")
    both_show(polling, "versions", "1 unloaded", "2 READY")
    polling.ask(ask("versions", 1)).are_the_same(503)
    polling.ask(ask("versions", 7)).are_the_same(404)
    polling.ask(get("/v2/models/versions/versions/1/stats")).are_the_same(400)
    repository.version("versions", 7, CODE % 7)
    both_show(polling, "versions", "1 unloaded", "2 READY", "7 READY")
    assert polling.ask(infer("versions", {"X": np.zeros(1, np.int32)})).are_the_same()["model_version"] == "7"
    # Triton 2.51 loads the second one again
    stats = fetch(polling.kushi, "GET", "/v2/models/versions/stats").json()["model_stats"]
    counts = {one["version"]: one["inference_stats"]["success"]["count"] for one in stats}
    assert counts == {"2": 1, "7": 1}


def test_a_version_that_is_broken_and_mended(polling: Pair, repository: Repository) -> None:
    repository.add("mended", 1, 2)
    both_show(polling, "mended", "1 READY", "2 READY")
    repository.version("mended", 2, "class (")
    assert polling.server is not None
    for log in (polling.peer.log, polling.server.log):
        eventually(lambda log=log: "failed to load 'mended' version 2" in log.text(), "it was tried")  # type: ignore[misc]
    both_answer(polling, "mended", 2, 2)
    both_show(polling, "mended", "1 READY", "2 READY")
    repository.version("mended", 2, CODE % 22)
    both_answer(polling, "mended", 2, 22)


def test_a_configuration_that_changes(polling: Pair, repository: Repository) -> None:
    model = repository.add("configured", 1, 2)
    both_show(polling, "configured", "1 READY", "2 READY")
    (model / ".new").write_text(CONFIG.replace(ALL, ""))
    (model / ".new").rename(model / "config.pbtxt")
    both_show(polling, "configured", "1 unloaded", "2 READY")


def test_a_model_that_goes(polling: Pair, repository: Repository) -> None:
    model = repository.add("leaves", 3)
    both_show(polling, "leaves", "3 READY")
    polling.ask(ask("leaves", 3)).are_the_same()
    model.rename(repository.path.parent / "gone")
    both_show(polling, "leaves")
    polling.ask(infer("leaves", {"X": np.zeros(1, np.int32)})).are_the_same(404)


def test_clients_load_and_unload_nothing(polling: Pair) -> None:
    for verb in ("load", "unload"):
        polling.ask(post(f"/v2/repository/models/m/{verb}", {})).are_the_same(503)
