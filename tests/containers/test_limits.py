"""What `docker run` allows a container is what it uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runners.threads import usable_cores
from tests.containers.test_faults import CLIENTS, both_ways
from tests.e2e.load import Load

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.containers.docker import Container

pytestmark = pytest.mark.timeout(1200)


@pytest.mark.parametrize("cpus", [None, 1, 1.5])
def test_workers_and_threads_are_as_many_as_its_processors(start: Callable[..., Container], cpus: float | None) -> None:
    allowed = usable_cores() if cpus is None else min(usable_cores(), int(cpus))
    with start(*([] if cpus is None else ["--cpus", str(cpus)])) as container:
        container.until_ready()
        assert len(container.workers("Kushi")) == allowed
        threads = container.threads(container.engine)
        assert sum(name.startswith("kushi-io-") for name in threads) == allowed


def test_half_a_gigabyte_of_memory_is_enough(start: Callable[..., Container]) -> None:
    with start("--memory", "512m", "--memory-swap", "512m", "--cpus", "1") as container:
        container.until_ready()
        before = [container.engine, *container.workers("Kushi"), *container.workers("Models")]
        with Load(container, both_ways() * (CLIENTS // 2)) as load:
            load.until_answered(500)
        assert {outcome.status for outcome in load.outcomes} == {200}
        assert container.processes().keys() >= {*before}
        assert not container.state["OOMKilled"]
