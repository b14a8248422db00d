"""One server of each kind for all tests of a process, and an empty bucket for each test."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.buckets.stores import ENVIRONMENT, S3, Faults

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_OF_STORES = ("AWS_", "AZURE_", "GOOGLE_", "TRITON_")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of this machine's own."""
    for name in [*os.environ]:
        if name.startswith(_OF_STORES):
            monkeypatch.delenv(name)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3]:
    with S3() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3) -> S3:
    s3_server.new_bucket()
    return s3_server


@pytest.fixture
def faults(s3: S3) -> Iterator[Faults]:
    with Faults(s3.port) as faults:
        yield faults
