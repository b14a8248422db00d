"""The cores that the instances of a model have, as its parameter `kushi.cores` and the process leave them"""

import logging
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from ..repository.cores import CORES, cores_of_instances, cores_together
from ..repository.messages import ModelConfig
from ..threads import usable_cores

__all__ = ["cores_for_all", "cores_of_process", "running_on", "warn_of_threads"]

_LOG = logging.getLogger(__name__)


def cores_of_process() -> Collection[int]:
    """Those that its threads may use, where nobody has said less of one"""
    return os.sched_getaffinity(os.getpid())


def cores_for_all(config: ModelConfig) -> int:
    """How many there are for all instances, of which each gets an equal part"""
    return cores_together(cores_of_instances(config), usable_cores())


def warn_of_threads(config: ModelConfig, threads: int) -> None:
    """Says where the configuration gives an instance so many threads that they wait for each other's cores"""
    sets = cores_of_instances(config)
    most = min(min(map(len, sets), default=usable_cores()), usable_cores())
    if threads > most:
        why = f"parameter '{CORES}'" if sets else "process"
        _LOG.warning(
            "model '%s': its configuration gives each instance %d threads, and the %s leaves it %d core(s)",
            *(config.name, threads, why, most),
        )


@contextmanager
def running_on(cores: Collection[int]) -> Iterator[None]:
    """
    Keeps this thread on some cores, or where there are none leaves it as it is. Threads that are started inside stay
    on them
    """
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
