"""What was raised while a model was loaded, as a failure of that model"""

import logging

from .errors import ConfigInvalid, EngineFailed, InternalError, KushiError

__all__ = ["Broken", "failure_of", "forget_frames"]

_LOG = logging.getLogger(__name__)


class Broken(Exception):
    """What was raised is no Exception, as a panic of native code or SystemExit: it ends this load and nothing else"""


def failure_of(error: BaseException, what: object) -> KushiError:
    """Why `what` cannot be loaded, whatever was raised; what no file of a model should bring about is logged whole"""
    if isinstance(error, KushiError):
        return error
    if isinstance(error, OSError):
        return ConfigInvalid(f"{error.filename or what}: {error.strerror or error}")
    if isinstance(error, MemoryError):
        return EngineFailed(f"{what}: there is not enough memory to load it")
    cause = error.__cause__ or error if isinstance(error, Broken) else error
    _LOG.error("%s cannot be loaded", what, exc_info=cause)
    return InternalError(f"{what}: {type(cause).__name__}: {cause}")


def forget_frames(error: BaseException) -> None:
    """Tracebacks would keep an engine alive, and what was opened of the model with all its memory"""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one and id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = None
            waiting += [one.__cause__, one.__context__]
