"""What the metrics say of real GPUs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer

pytestmark = pytest.mark.gpu

SERIES = re.compile(r'(nv_gpu_\w+|nv_energy_consumption)\{gpu_uuid="(GPU-[0-9a-f-]{36})"\}')


def test_gpus_tell_how_busy_they_are(repository: Path, start_server: StartServer) -> None:
    server = start_server(repository, "--metrics-interval-ms=100")

    def values() -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {}
        for series, value in server.metrics().items():
            if match := SERIES.fullmatch(series):
                found.setdefault(match[1], {})[match[2]] = value
        return found

    eventually(lambda: bool(values()), "a first reading")
    found = values()
    assert all(0 <= value <= 1 for value in found["nv_gpu_utilization"].values())
    for uuid, total in found["nv_gpu_memory_total_bytes"].items():
        assert 0 <= found["nv_gpu_memory_used_bytes"][uuid] <= total
        assert total > 1 << 30
    # not every GPU tells these
    assert all(value > 0 for value in found.get("nv_gpu_power_usage", {}).values())
    assert all(value > 0 for value in found.get("nv_gpu_power_limit", {}).values())
    if "nv_energy_consumption" in found:
        eventually(lambda: min(values()["nv_energy_consumption"].values()) > 0, "energy is used")
