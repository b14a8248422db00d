"""Metrics of GPUs, with a library that stands in for NVML and shows two"""

from __future__ import annotations

import re
from ctypes.util import find_library
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from runners import Client
from tests import models
from tests.nvml import UUIDS, StandIn
from tests.processes import thread_names
from tests.raw_http import fetch
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.serving import Server

FIRST, SECOND = UUIDS
OFTEN = "--metrics-interval-ms=20"
FAMILIES = {
    "nv_gpu_utilization": ("gauge", "GPU utilization rate [0.0 - 1.0)"),
    "nv_gpu_memory_total_bytes": ("gauge", "GPU total memory, in bytes"),
    "nv_gpu_memory_used_bytes": ("gauge", "GPU used memory, in bytes"),
    "nv_gpu_power_usage": ("gauge", "GPU power usage in watts"),
    "nv_gpu_power_limit": ("gauge", "GPU power management limit in watts"),
    "nv_energy_consumption": ("counter", "GPU energy consumption in joules since the Triton Server started"),
}
POWER = ("nv_gpu_power_usage", "nv_gpu_power_limit", "nv_energy_consumption")


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn.made(tmp_path / "driver")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(made.folder))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return made


@pytest.fixture
def start_with(repository: Path, start_server: StartServer, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Server]:
    """A server to which CUDA shows these GPUs"""

    def start(visible: str) -> Server:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        return start_server(repository, OFTEN)

    return start


def page_of(server: Server) -> str:
    return fetch(server.metrics_address, "GET", "/metrics").body.decode()


def told(server: Server) -> dict[str, dict[str, float]]:
    """What the metrics say of GPUs: the families, with the value of each GPU"""
    return {
        family.name: {sample.labels["gpu_uuid"]: sample.value for sample in family.samples}
        for family in text_string_to_metric_families(page_of(server))
        if family.name in FAMILIES or "gpu" in family.name
    }


def test_every_gpu_tells_what_it_can(nvml: StandIn, repository: Path, start_server: StartServer) -> None:
    nvml.tell(0, percent=37, used_bytes=3 << 30, milliwatts=215_500, millijoules=9_000_000)
    nvml.tell(1, percent=100, used_bytes=5)
    server = start_server(repository, OFTEN)
    eventually(lambda: bool(told(server)), "a first reading")
    assert told(server) == {
        "nv_gpu_utilization": {FIRST: 0.37, SECOND: 1.0},
        "nv_gpu_memory_total_bytes": {FIRST: 80 << 30, SECOND: 80 << 30},
        "nv_gpu_memory_used_bytes": {FIRST: 3 << 30, SECOND: 5},
        "nv_gpu_power_usage": {FIRST: 215.5},
        "nv_gpu_power_limit": {FIRST: 700.0},
        "nv_energy_consumption": {FIRST: 0.0},
    }
    page = page_of(server)
    for name, (kind, text) in FAMILIES.items():
        assert f"# HELP {name} {text}\n# TYPE {name} {kind}\n{name}{{gpu_uuid=" in page, name


def test_what_a_gpu_says_later_is_told_later(nvml: StandIn, repository: Path, start_server: StartServer) -> None:
    server = start_server(repository, OFTEN)

    def utilization_is(value: float) -> bool:
        return told(server).get("nv_gpu_utilization", {}).get(SECOND) == value

    for percent in (10, 20, 0):
        nvml.tell(1, percent=percent)
        eventually(partial(utilization_is, percent / 100), "the new value")


def test_energy_counts_from_the_start_of_the_server(nvml: StandIn, repository: Path, start_server: StartServer) -> None:
    nvml.tell(0, millijoules=123_456_789)
    server = start_server(repository, OFTEN)
    # it is read in full before the first page has it
    eventually(lambda: told(server).get("nv_energy_consumption") == {FIRST: 0.0}, "a first reading")
    nvml.tell(0, millijoules=123_458_289)
    eventually(lambda: told(server)["nv_energy_consumption"] == {FIRST: 1.5}, "joules since then")


def test_what_a_gpu_cannot_tell_is_said_once(nvml: StandIn, repository: Path, start_server: StartServer) -> None:
    server = start_server(repository, OFTEN)
    eventually(lambda: nvml.calls >= 10, "five readings of both")
    assert not [name for name in POWER if SECOND in told(server)[name]]
    assert server.stop() == 0
    complaints = [line for line in server.log.lines if SECOND in line]
    assert [line[0] for line in complaints] == ["W"] * 3
    for what in ("power usage", "power limit", "energy consumption"):
        assert sum(f"does not tell its {what}: Not Supported" in line for line in complaints) == 1, what


def test_readings_are_as_far_apart_as_they_shall_be(nvml: StandIn, repository: Path, start_server: StartServer) -> None:
    server = start_server(repository, "--metrics-interval-ms=3600000")
    eventually(lambda: bool(told(server)), "a first reading")
    nvml.tell(0, percent=50)
    for _ in range(20):
        assert told(server)["nv_gpu_utilization"][FIRST] == 0
    assert nvml.calls == 2


@pytest.mark.clock
def test_they_can_be_left_out(nvml: StandIn, repository: Path, start_server: StartServer) -> None:
    server = start_server(repository, OFTEN, "--allow-gpu-metrics=false")
    assert told(server) == {}
    assert "kushi-gpus" not in thread_names(server.pid).values()
    assert server.stop() == 0
    assert nvml.calls == 0
    assert "GPU" not in server.log.text()


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [
        ("0", [FIRST]),
        ("1,0", [FIRST, SECOND]),
        (SECOND, [SECOND]),
        ("GPU-2", [SECOND]),
        ("MIG-part-of-the-second", [SECOND]),
        ("0,7,1", [FIRST]),
    ],
)
@pytest.mark.usefixtures("nvml")
def test_gpus_that_cuda_does_not_show_are_not_told_of(
    visible: str, uuids: list[str], start_with: Callable[[str], Server]
) -> None:
    server = start_with(visible)
    eventually(lambda: bool(told(server)), "a first reading")
    assert list(told(server)["nv_gpu_utilization"]) == uuids


@pytest.mark.parametrize(
    ("lacks", "visible", "why"),
    [
        (StandIn.is_no_library, "0", r".*libnvidia-ml\.so\.1: file too short"),
        (StandIn.has_no_driver, "0", r"libnvidia-ml\.so\.1: Driver Not Loaded$"),
        (StandIn.has_no_gpu, "0", "there is none$"),
        (lambda _: None, "GPU-3", r'none of 2 is visible with CUDA_VISIBLE_DEVICES="GPU-3"$'),
        (lambda _: None, "", r'none of 2 is visible with CUDA_VISIBLE_DEVICES=""$'),
    ],
)
def test_where_there_is_nothing_one_line_of_the_log_says_so(
    lacks: Callable[[StandIn], None],
    visible: str,
    why: str,
    nvml: StandIn,
    start_with: Callable[[str], Server],
) -> None:
    lacks(nvml)
    server = start_with(visible)

    def is_said() -> bool:
        assert told(server) == {}
        return "GPU" in server.log.text()

    eventually(is_said, "a line")
    assert server.metrics()["nv_cpu_memory_total_bytes"] > 0
    assert server.stop() == 0
    (line,) = [line for line in server.log.lines if "GPU" in line]
    assert re.search(f"^I.*the metrics have no GPUs: {why}", line), line


def has_looked(server: Server) -> bool:
    return "kushi-gpus" not in thread_names(server.pid).values()


@pytest.mark.clock
@pytest.mark.skipif(find_library("nvidia-ml") is not None, reason="NVIDIA's driver is installed here")
def test_where_there_is_no_driver_only_a_verbose_log_says_so(repository: Path, start_server: StartServer) -> None:
    quiet, verbose = (start_server(repository, OFTEN, f"--log-verbose={level}") for level in (0, 1))

    for server in (quiet, verbose):
        eventually(partial(has_looked, server), "it has looked for one")
        assert told(server) == {}
        assert server.stop() == 0
    assert "the metrics have no GPUs: libnvidia-ml.so.1: cannot open" in verbose.log.text()
    assert "GPU" not in quiet.log.text()


@pytest.mark.parametrize("from_the_start", [True, False])
def test_a_driver_that_hangs_holds_up_nothing(
    from_the_start: bool, nvml: StandIn, repository: Path, start_server: StartServer
) -> None:
    models.write_add_sub(repository)
    if from_the_start:
        nvml.hang()
    server = start_server(repository, OFTEN, "--http-thread-count=1")
    if not from_the_start:
        eventually(lambda: bool(told(server)), "a first reading")
        nvml.hang()
    ones = np.ones((1, 16), np.int32)
    silent = re.compile("the driver of NVIDIA has not answered for")

    def is_noticed() -> bool:
        with Client(server.url) as client:
            client.infer("add_sub", {"INPUT0": ones, "INPUT1": ones})
        told(server)
        return bool(silent.search(server.log.text()))

    eventually(is_noticed, "a warning")
    assert told(server) == {}
    assert server.metrics()["nv_cpu_memory_total_bytes"] > 0
    nvml.go_on()
    eventually(lambda: bool(told(server)), "it goes on")
    assert len([line for line in server.log.lines if silent.search(line)]) == 1


def test_a_driver_that_hangs_does_not_keep_the_server_from_its_end(
    nvml: StandIn, repository: Path, start_server: StartServer
) -> None:
    server = start_server(repository, OFTEN)
    eventually(lambda: bool(told(server)), "a first reading")
    nvml.hang()
    assert server.stop() == 0
