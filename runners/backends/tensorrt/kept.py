"""
Plans that were built here: each is kept under a name that says what it was built of, with what, and for what.

When one is written, those are removed that were not used for the longest time: of each kind of GPU a few stay. Several
servers may share the folder: a plan may be gone at any time, and is then built again.
"""

from __future__ import annotations

import hashlib
import logging
import mmap
import os
import re
from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING

from ...errors import ConfigInvalid
from ...wanted import check_wanted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from .recipe import Recipe

__all__ = ["KEPT_PLANS", "content_of", "files_of", "kept_name", "mark_used", "remove_unused", "timings_name"]

KEPT_PLANS = 4
"""Of one model and version for each kind of GPU: the last ones, with room for a way back to an older TensorRT"""

_LOG = logging.getLogger(__name__)
_CHUNK_BYTES = 1 << 20
_LOCATION = re.compile(rb"\n\x08location\x12([\x00-\x7f]|[\x80-\xff][\x01-\x7f])")
"""What stands before the name of a file with weights, in an entry of a tensor's `external_data`: its length last"""
_LONGEST_WRITE_SECONDS = 24 * 3600


def kept_name(content: str, recipe: Recipe, *, version: Iterable[int], gpu: str, compute_capability: str) -> str:
    """The same name means the same plan; its beginning is the kind of GPU"""
    said = "\n".join([content, recipe.to_json(), ".".join(map(str, version)), gpu, compute_capability])
    return f"{_kind_of(gpu, compute_capability)}-{hashlib.sha256(said.encode()).hexdigest()[:32]}.plan"


def timings_name(*, version: Iterable[int], gpu: str, compute_capability: str) -> str:
    """Of what builds have measured, which is of use to the same version on the same kind of GPU alone"""
    return f"{_kind_of(gpu, compute_capability)}-{'.'.join(map(str, version))}.timing"


def mark_used(plan: Path) -> None:
    """Where that can be written down"""
    with suppress(OSError):
        os.utime(plan)


def remove_unused(written: Path) -> None:
    """Removes the plans beside this one, which is new, that are too many, and what builds that were killed have left"""
    now = _used(written)
    others = [path for path in written.parent.glob("*.plan") if path != written and _kind(path) == _kind(written)]
    others.sort(key=_used, reverse=True)
    parts = [path for path in written.parent.glob(".*.part") if now - _used(path) > _LONGEST_WRITE_SECONDS]
    for path in (*others[KEPT_PLANS - 1 :], *parts):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            _LOG.warning("the plan '%s', which is not used, cannot be removed: %s", path, error)


def _kind_of(gpu: str, compute_capability: str) -> str:
    return re.sub("[^A-Za-z0-9]+", "-", f"{gpu} {compute_capability}").strip("-")


def _kind(plan: Path) -> str:
    return plan.name.rpartition("-")[0]


def _used(path: Path) -> float:
    """When it was written or served the last time, by the clock of the file system"""
    try:
        return path.stat().st_mtime
    except OSError:
        # another server has removed it
        return 0.0


def content_of(source: Path) -> str:
    """Of an ONNX file, and of the files that it names"""
    digest = hashlib.sha256()
    for name, path in files_of(source).items():
        digest.update(name.encode() + b"\0")
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                check_wanted()
                digest.update(chunk)
    return digest.hexdigest()


def files_of(source: Path) -> Mapping[str, Path]:
    """An ONNX file and those beside and below it that have its weights: by the names by which it says them"""
    if not source.stat().st_size:
        raise ConfigInvalid(f"'{source}' is empty, expected an ONNX model")
    with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as graph:
        named = sorted({_named(graph, found) for found in _LOCATION.finditer(graph)})
    below = [name for name in named if name and not PurePath(name).is_absolute() and ".." not in PurePath(name).parts]
    weights = {name: source.parent / name for name in below}
    return {source.name: source, **{name: path for name, path in weights.items() if _is_file(path)}}


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        # a name that no file can have is a text of something else
        return False


def _named(graph: mmap.mmap, found: re.Match[bytes]) -> str:
    """The name behind its length, of which each byte says 7 bits, the least ones first"""
    length = sum((byte & 0x7F) << 7 * index for index, byte in enumerate(found[1]))
    return graph[found.end() : found.end() + length].decode(errors="replace")
