"""
Models that nobody vouches for (`--model-trust=none`): before this process opens one, another one opens it and asks it.
That process may end; this one would take all models with it.

What came of it is kept in the user's cache, by the content of the files and of the configuration, the settings and the
versions of what executes the model. It is no sandbox: the other process is of the same user.
"""

import hashlib
import json
import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .._version import __version__
from ..environment import cache_directory
from ..errors import ConfigInvalid, KushiError
from ..repository.discovery import descriptor_of
from ..wanted import check_wanted
from .isolation_messages import Order
from .worker_models import of_this_program

__all__ = ["try_first"]

_LOG = logging.getLogger(__name__)
_FILE = Path(__file__).with_name("untrusted_entry.py")
_MOST_TRIALS = 3
"""Of files that change meanwhile"""
_BLOCK = 1024 * 1024
_MOST_FILES = 100_000
_MOST_DEPTH = 64
_MOST_BYTES = 256 * 1024**3
"""Of what is looked at to know a content again: a link may lead to all files of the machine, or to its memory"""
_CRASH = re.compile(r"it was killed by signal (4|5|6|7|8|11|31) ")
"""Of the process itself, and nobody else's: SIGILL, TRAP, ABRT, BUS, FPE, SEGV and SYS"""
_EXIT = "it exited with code "


_Seen = list[tuple[str, int, int, int, int, int]]


@dataclass(frozen=True)
class _Outcome:
    """What came of a trial"""

    reason: str
    """Why the model is refused, without its path, which another copy does not have; "" where it is not"""
    lasts: bool
    """Whether the next trial of the same content would come to the same end"""


def try_first(order: Order, seconds: float, path: Path, beside: Iterable[Path]) -> Callable[[], None]:
    """
    Raises where the model at `path`, with these files beside it, has ended a process that tried it for no longer than
    that. What it answers raises where the files are no more those that were tried
    """
    beside = [*beside]
    for _ in range(_MOST_TRIALS):
        check_wanted()
        try:
            seen = _seen(path, beside)
            verdict = _Verdict(_key(order, path, beside))
        except FileNotFoundError:
            continue
        reason = verdict.read()
        if reason is None:
            _LOG.info("'%s' is tried in a process of its own first", path)
            outcome = _tried(order, seconds)
            reason = outcome.reason
            if _has_changed(seen, path, beside):
                # nobody knows what was tried
                continue
            if outcome.lasts:
                verdict.write(reason)
        if reason:
            raise ConfigInvalid(f"'{path}' {reason}")
        return partial(_check_unchanged, seen, path, beside)
    raise ConfigInvalid(f"'{path}' changes while it is tried (--model-trust=none)")


def _check_unchanged(seen: _Seen, path: Path, beside: Iterable[Path]) -> None:
    if _has_changed(seen, path, beside):
        raise ConfigInvalid(f"'{path}' has changed while it was opened, so that it is not loaded (--model-trust=none)")


def _has_changed(seen: _Seen, path: Path, beside: Iterable[Path]) -> bool:
    try:
        return seen != _seen(path, beside)
    except FileNotFoundError:
        return True


def _seen(path: Path, beside: Iterable[Path]) -> _Seen:
    """
    Of the model and its weights, what changes with whatever is written to them or put in their place. What lies beside
    them may be the engine's own, as a profile of it
    """
    files = [path, *beside, *(_below(path, set()) if path.is_dir() else ())]
    found = ((str(file), file.stat()) for file in sorted(files))
    # who writes may put the time of that back, and not the time of the change
    return [(name, one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for name, one in found]


def _tried(order: Order, seconds: float) -> _Outcome:
    """What a load says by itself, it will say again"""
    workers = of_this_program(_FILE, order.source, seconds)
    try:
        answer = workers.complete(f"{order.config.name}_trial", json.dumps({**order.to_plain(), "seconds": seconds}))
    except KushiError as error:
        crashed = bool(_CRASH.search(str(error)))
        what = "ended the process that tried it" if crashed or _EXIT in str(error) else "could not be tried"
        return _Outcome(f"{what}, so that it is not loaded (--model-trust=none): {error}", lasts=crashed)
    came: dict[str, Any] = json.loads(answer)
    if refused := came.get("refused"):
        return _Outcome(f"{refused}: it is not loaded (--model-trust=none)", lasts=True)
    return _Outcome("", lasts=came["is_over"])


class _Verdict:
    """What is known of one content, as a file of the cache: its text is the reason, none where it may be loaded"""

    def __init__(self, key: str) -> None:
        self._path = cache_directory() / "trials" / key

    def read(self) -> str | None:
        try:
            return self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            _LOG.warning("%s: it is tried again: %s", self._path, error)
            return None

    def write(self, reason: str) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # whole or not at all, whoever reads or writes it beside
            with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=self._path.parent, delete=False) as file:
                file.write(reason)
            Path(file.name).replace(self._path)
        except OSError as error:
            _LOG.warning("%s: it will be tried again next time: %s", self._path, error.strerror or error)


def _key(order: Order, path: Path, beside: Iterable[Path]) -> str:
    descriptor = descriptor_of(order.config.backend)
    versions = [f"{name}={found}" for name in descriptor.packages if (found := _version(name))]
    about = [__version__, *versions, order.config.backend, json.dumps(dict(order.settings), sort_keys=True)]
    about.append(f"auto_complete={order.auto_complete}")
    digest = hashlib.sha256(json.dumps(about).encode())
    digest.update(order.config.SerializeToString(deterministic=True))
    left = _MOST_BYTES
    for name, file in sorted(_files(order, path, beside)):
        size = file.stat().st_size
        left -= size
        if left < 0:
            raise ConfigInvalid(
                f"'{path}' has more than {_MOST_BYTES} bytes beside it: --model-trust=none reads them all"
            )
        digest.update(b"\0%s\0%d\0" % (name, size))
        for block in _blocks(file, size):
            digest.update(block)
    return digest.hexdigest()


def _blocks(file: Path, size: int) -> Iterator[bytes]:
    """A file of the kernel's has no size, and may have no end"""
    if size == 0:
        return
    with file.open("rb") as content:
        while block := content.read(min(size, _BLOCK)):
            check_wanted()
            yield block
            size -= len(block)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _files(order: Order, path: Path, beside: Iterable[Path]) -> Iterator[tuple[bytes, Path]]:
    """All files of the version, and what lies beside the versions, as samples and libraries; by where they lie"""
    source = order.source
    if source.path.is_file():
        files = [path, *beside]
    else:
        others = {os.path.abspath(one) for number, one in source.versions.items() if number != order.version}  # noqa: PTH100
        files = [*_below(source.path, others), *beside]
    yield from ((os.fsencode(os.path.relpath(file, source.path)), file) for file in files)


def _below(directory: Path, others: set[str]) -> Iterator[Path]:
    """Regular files, those behind links as well, but for what stands in `others`; no directory twice"""
    seen = set[str]()
    count = 0
    top = os.path.abspath(directory)  # noqa: PTH100
    for folder, folders, names in os.walk(top, followlinks=True):
        if folder.count(os.sep) - top.count(os.sep) > _MOST_DEPTH:
            raise ConfigInvalid(f"'{directory}' has directories more than {_MOST_DEPTH} deep: --model-trust=none")
        seen.add(os.path.realpath(folder))
        # by its own path: another version may be a link to this one
        paths = {name: os.path.join(folder, name) for name in folders}  # noqa: PTH118
        folders[:] = [name for name, path in paths.items() if path not in others and os.path.realpath(path) not in seen]
        for name in names:
            if (file := Path(folder, name)).is_file():
                count += 1
                if count > _MOST_FILES:
                    raise ConfigInvalid(
                        f"'{directory}' has more than {_MOST_FILES} files: --model-trust=none reads them all"
                    )
                yield file
