"""How many threads a model may use: a budget, instances × intra-op threads ≤ usable cores"""

from kushi_native import usable_cores

__all__ = ["SHORT_RUN_SECONDS", "intra_op_threads", "share", "usable_cores"]

SHORT_RUN_SECONDS = 0.001


def intra_op_threads(asked: int, measured_seconds: float | None, instances: int, cores: int) -> int:
    """
    What the configuration asks for; else one for a short model, where waking a second thread costs more than it
    saves; else the instance's share of the cores. A model that could not be measured counts as long.
    """
    if asked > 0:
        return asked
    if measured_seconds is not None and measured_seconds < SHORT_RUN_SECONDS:
        return 1
    return share(cores, instances)


def share(cores: int, instances: int) -> int:
    """The threads of an instance of a long model, where all have as many"""
    return max(1, cores // max(1, instances))
