"""
The environments in the user's cache: each is made once, by whoever needs it first.

Files of an environment name the directory they are in, so it is made where it stays, and its name becomes a link to
it once all is there. One process makes it while others wait; when that process dies, the next one begins anew.
"""

import fcntl
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ...environment import cache_directory
from ...wanted import check_wanted
from .progress import reported

__all__ = ["made_once"]

_LOOK_SECONDS = 0.2


def made_once(name: str, what: str, make: Callable[[Path], None]) -> Path:
    """The directory of the environment `name`; where it is not there yet, `make` fills an empty one"""
    base = cache_directory() / "environments"
    link = base / name
    if not link.is_dir():
        base.mkdir(parents=True, exist_ok=True)
        with _alone(base / f"{name}.lock", what):
            if not link.is_dir():
                _make(link, make)
    return link.resolve()


@contextmanager
def _alone(lock: Path, what: str) -> Iterator[None]:
    with lock.open("w") as file:
        with reported(lambda: f"{what} is made elsewhere, waiting"):
            while not _is_taken(file):
                check_wanted()
                time.sleep(_LOOK_SECONDS)
        yield


def _is_taken(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _make(link: Path, make: Callable[[Path], None]) -> None:
    for left_behind in link.parent.glob(f"{link.name}-*"):
        shutil.rmtree(left_behind, ignore_errors=True)
    place = Path(tempfile.mkdtemp(dir=link.parent, prefix=f"{link.name}-"))
    try:
        make(place)
        # beside the place, so that what a broken one leaves goes with it
        new = place.with_name(f"{place.name}.link")
        new.symlink_to(place.name)
        new.replace(link)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
