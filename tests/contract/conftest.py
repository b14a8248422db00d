"""One engine over the standard repository, and every way to call it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from runners import Engine, EngineOptions, LogOptions
from tests.contract.ways import WAYS, door

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from runners.calls import Calls


@pytest.fixture(scope="session")
def ways(standard_repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Calls]]:
    folder = tmp_path_factory.mktemp("doors")
    options = EngineOptions(log=LogOptions(info=False))
    with Engine(standard_repository, options=options) as engine, ExitStack() as stack:
        yield {way: stack.enter_context(door(engine, way, folder)) for way in WAYS}


@pytest.fixture(params=WAYS)
def calls(ways: Mapping[str, Calls], request: pytest.FixtureRequest) -> Calls:
    return ways[request.param]
