"""
What was changed about the versions of a model while it served, and is to stay: a file beside config.pbtxt, which takes
the place of the parameter `kushi.versions`.
"""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..errors import ConfigInvalid
from .files import read_file
from .version_routes import VersionRoutes, json_object, routes_from

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["KEPT", "WHERE", "Kept", "forget", "keep", "kept_text", "read_kept"]

KEPT: Final = "kushi.versions.json"
WHERE: Final = f"file '{KEPT}'"
"""How errors name it"""
_MOST_CHARACTERS: Final = 64 * 1024


@dataclass(frozen=True)
class Kept:
    """What the file says"""

    routes: VersionRoutes
    before: VersionRoutes | None = None
    """What they were before the last change"""


def read_kept(folder: Path) -> Kept | None:
    """What the file in this directory of a model says, if there is one"""
    file = folder / KEPT
    if not os.path.lexists(file):
        return None
    stated = json_object(read_file(file, "configuration").decode(errors="replace"), WHERE, _MOST_CHARACTERS)
    before = stated.pop("before", None)
    return Kept(routes_from(stated, WHERE), None if before is None else routes_from(before, f"{WHERE}, 'before'"))


def kept_text(kept: Kept) -> str:
    """What the file is to say"""
    before = {} if kept.before is None else {"before": kept.before.plain}
    return json.dumps({**kept.routes.plain, **before}, indent=2) + "\n"


def keep(folder: Path, kept: Kept) -> None:
    """Writes the file; raises where that cannot be done"""
    text = kept_text(kept)
    new = folder / f".{KEPT}-{os.getpid()}-{threading.get_native_id()}"
    try:
        with new.open("x") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(folder / KEPT)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        raise ConfigInvalid(f"{WHERE} cannot be written, so that nothing changes: {error}") from error


def forget(folder: Path) -> None:
    """Takes the file away, if there is one; raises where that cannot be done"""
    if not os.path.lexists(folder / KEPT):
        # a directory that nobody may write says so of what is not there as well
        return
    try:
        (folder / KEPT).unlink(missing_ok=True)
    except OSError as error:
        raise ConfigInvalid(f"{WHERE} cannot be deleted, so that nothing changes: {error}") from error
