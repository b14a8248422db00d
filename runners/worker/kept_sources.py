"""Python files as they were when their model was loaded: what lies there now may be those of another load"""

from __future__ import annotations

import sys
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["KeptLoader", "keep"]

_KEPT: dict[str, bytes] = {}


class KeptLoader(SourceFileLoader):
    """Of a kept file there is nothing in caches: those are about what lies there"""

    def path_stats(self, path: Any) -> Any:
        if path in _KEPT:
            raise OSError
        return super().path_stats(path)

    def get_data(self, path: Any) -> bytes:
        kept = _KEPT.get(path)
        return super().get_data(path) if kept is None else kept


def keep(sources: Mapping[str, str]) -> None:
    """From now on they are imported as they are here; each character is a byte"""
    if not sources:
        return
    _KEPT.update((path, text.encode("latin-1")) for path, text in sources.items())
    kinds = [
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (KeptLoader, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    ]
    sys.path_hooks.insert(0, FileFinder.path_hook(*kinds))
    sys.path_importer_cache.clear()
