"""The threads of the libraries in a Python model"""

import os
import re
from pathlib import Path

import pytest

from runners import Engine
from runners.threads import usable_cores
from tests.integration.python_models.environments import where, write


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in filter(re.compile("_THREADS$").search, list(os.environ)):
        monkeypatch.delenv(name)


@pytest.mark.parametrize("instances", [1, 2, 3])
def test_an_instance_has_its_share_of_the_cores(repository: Path, instances: int) -> None:
    write(repository, extra=f"instance_group [ {{ count: {instances} }} ]")
    with Engine(repository) as engine:
        variables = where(engine)["variables"]
    share = str(max(1, usable_cores() // instances))
    of_openmp = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    of_tensorflow = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
    assert {variables[name] for name in of_openmp + of_tensorflow} == {share}


def test_what_the_server_was_given_stands(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "5")
    write(repository)
    with Engine(repository) as engine:
        variables = where(engine)["variables"]
    assert variables["OMP_NUM_THREADS"] == "7"
    assert variables["TF_NUM_INTRAOP_THREADS"] == "5"
    assert "MKL_NUM_THREADS" not in variables, "OpenMP's is meant for it, too"
    assert variables["RAYON_NUM_THREADS"] == str(usable_cores())
