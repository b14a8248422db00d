"""Several works at a time, with a line of the log for those that take long"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

__all__ = ["on_threads"]

_LOG = logging.getLogger(__name__)
_PROGRESS_SECONDS = 2.0

_T = TypeVar("_T")


def on_threads(threads: int, works: Mapping[str, Callable[[], _T]], interrupted: Callable[[], None]) -> list[_T]:
    """What each answers, on so many threads; `interrupted` ends them where a signal ends the wait for them"""
    with ThreadPoolExecutor(threads, thread_name_prefix="kushi-start") as pool:
        waiting = {pool.submit(work): name for name, work in works.items()}
        try:
            for names in _still_waiting(waiting):
                _LOG.info("still loading: %s", ", ".join(names))
        except BaseException:
            # a signal ends the wait of this thread; those of the pool wait as well
            pool.shutdown(wait=False, cancel_futures=True)
            interrupted()
            raise
    return [done.result() for done in waiting]


def _still_waiting(futures: Mapping[Future[Any], str]) -> Iterator[list[str]]:
    """The names of what is not done, each time that a while has passed, until all is"""
    started = time.monotonic()
    while pending := wait(futures, timeout=_PROGRESS_SECONDS).not_done:
        if time.monotonic() - started >= _PROGRESS_SECONDS:
            yield sorted(futures[future] for future in pending)
