"""Loads onto GPUs whose memory is used, with a driver that stands in for one"""

import re
from pathlib import Path

import pytest

from tests import placed
from tests.conftest import StartServer

LIMIT = "--model-load-gpu-limit=1:0.8"


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their memory is used to four fifths and a bit"""
    monkeypatch.setenv("STAND_IN_FREE_PERCENT", "19")


@pytest.mark.usefixtures("two_gpus", "used")
def test_a_load_onto_a_gpu_above_its_limit_is_refused_with_tritons_text(
    repository: Path, start_server: StartServer
) -> None:
    placed.write(repository, "m", "instance_group { kind: KIND_GPU gpus: 1 }")
    placed.write(repository, "of_other_gpu", "instance_group { kind: KIND_GPU gpus: 0 }")
    placed.write(repository, "on_cpu", "instance_group { kind: KIND_CPU }")
    server = start_server(repository, "--exit-on-error=false", LIMIT, ready=False)
    index = {row["name"]: row for row in server.post("/v2/repository/index", b"").json()}
    assert index["m"]["reason"] == (
        "can not create model 'm': memory limit set for GPU 1 has exceeded, model loading is rejected."
    )
    assert index["of_other_gpu"]["state"] == index["on_cpu"]["state"] == "READY"


@pytest.mark.usefixtures("two_gpus", "used")
def test_a_load_below_the_limit_is_carried_out(
    repository: Path, start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_FREE_PERCENT", "20")
    placed.write(repository, "m", "instance_group { kind: KIND_GPU gpus: 1 }")
    placed.ask(start_server(repository, LIMIT), "m")


def test_the_pool_of_gpu_memory_is_accepted_and_said_to_have_no_effect(
    repository: Path, start_server: StartServer
) -> None:
    placed.write(repository, "m")
    flags = ("--cuda-memory-pool-byte-size=0:67108864", "--cuda-memory-pool-byte-size=1:0")
    server = start_server(repository, *flags, "--pinned-memory-pool-byte-size=0")
    server.log.wait_for(
        re.compile("--cuda-memory-pool-byte-size has no effect: the server has no memory of its own"), 10
    )
