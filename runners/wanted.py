"""Whether the load is still wanted at which a thread works: an unload may have given it up meanwhile"""

from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any

from .errors import ModelUnavailable

__all__ = ["check_wanted", "is_given_up", "work_for"]

_STEP: ContextVar[Future[Any]] = ContextVar("step")


def work_for(step: Future[Any]) -> None:
    """From now on this thread works for a step of a load, which is cancelled when it is given up"""
    _STEP.set(step)


def is_given_up() -> bool:
    """Whether nobody waits any more for what this thread does"""
    step = _STEP.get(None)
    return step is not None and step.cancelled()


def check_wanted() -> None:
    """Raises where that is so: before something that takes long, and that nobody would need"""
    if is_given_up():
        raise ModelUnavailable("the load was given up")
