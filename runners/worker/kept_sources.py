"""Python files as they were when their model was loaded: what lies there now may be those of another load"""

from __future__ import annotations

import base64
import io
import json
import linecache
import os
import sys
import zlib
from contextlib import suppress
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
    SourcelessFileLoader,
)
from importlib.util import decode_source, spec_from_file_location
from typing import Any

__all__ = ["is_apart", "keep"]

_KEPT: dict[str, bytes] = {}
_WHOLE: set[str] = set()
"""Directories of which all Python files are kept"""
_LEFT: set[str] = set()
"""But for these"""
_COMPILED = (ExtensionFileLoader, EXTENSION_SUFFIXES)
_SOURCELESS = (SourcelessFileLoader, BYTECODE_SUFFIXES)


_path_stats, _get_data = SourceFileLoader.path_stats, SourceFileLoader.get_data


def _stats_of_others(loader: SourceFileLoader, path: Any) -> Any:
    """Of a kept file there is nothing in caches: those are about what lies there"""
    if _straight(path) in _KEPT:
        raise OSError
    return _path_stats(loader, path)


def _kept_first(loader: SourceFileLoader, path: Any) -> bytes:
    kept = _KEPT.get(_straight(path))
    return _get_data(loader, path) if kept is None else kept


def _straight(name: Any) -> str:
    """Without `..`, where that leads to the same place"""
    path = os.fsdecode(name)
    if ".." not in path:
        return path
    straight = os.path.normpath(path)
    return straight if os.path.realpath(straight) == os.path.realpath(path) else path


class _KeptFinder:
    """Finds in a directory what Python finds there, but for files of Python: of these there are those that are kept"""

    def __init__(self, path: str) -> None:
        self.path = path
        self._compiled, self._sourceless = FileFinder(path, _COMPILED), FileFinder(path, _SOURCELESS)
        self._as_it_lies = FileFinder(path, *_KINDS)

    def find_spec(self, fullname: str, target: Any = None) -> ModuleSpec | None:
        base = os.path.join(self.path, fullname.rpartition(".")[2])  # noqa: PTH118 - as it is in sys.path
        package = os.path.join(base, "__init__.py")  # noqa: PTH118 - the same
        if not _LEFT.isdisjoint((base, f"{base}.py", package)):
            return self._as_it_lies.find_spec(fullname, target)
        if package in _KEPT:
            loader = SourceFileLoader(fullname, package)
            return spec_from_file_location(fullname, package, loader=loader, submodule_search_locations=[base])
        found = self._compiled.find_spec(fullname, target)
        if found is not None and found.loader is not None:
            return found
        if f"{base}.py" in _KEPT:
            return spec_from_file_location(fullname, f"{base}.py", loader=SourceFileLoader(fullname, f"{base}.py"))
        found = self._sourceless.find_spec(fullname, target)
        if found is None and any(path.startswith(base + os.sep) for path in _KEPT):
            # a directory that is gone, without an __init__.py
            found = ModuleSpec(fullname, None, is_package=True)
            found.submodule_search_locations = [base]
        return found

    def iter_modules(self, prefix: str = "") -> Any:
        """As pkgutil asks: names, and whether they are packages"""
        found = {}
        for path in _KEPT:
            folder, name = os.path.split(path)
            if folder == self.path and name != "__init__.py":
                found[name[:-3]] = False
            elif name == "__init__.py" and os.path.dirname(folder) == self.path:  # noqa: PTH120 - as it is in sys.path
                found[os.path.basename(folder)] = True  # noqa: PTH119 - the same
        with suppress(OSError):
            for name in {entry.partition(".")[0] for entry in os.listdir(self.path)} - {*found, "__init__"}:  # noqa: PTH208 - the same
                spec = self.find_spec(name)
                if spec is not None and spec.loader is not None:
                    found[name] = spec.submodule_search_locations is not None
        return ((prefix + name, found[name]) for name in sorted(found))

    def invalidate_caches(self) -> None:
        for finder in (self._compiled, self._sourceless, self._as_it_lies):
            finder.invalidate_caches()


_KINDS = (_COMPILED, (SourceFileLoader, SOURCE_SUFFIXES), _SOURCELESS)
_any_finder = FileFinder.path_hook(*_KINDS)


def _finder(path: str) -> Any:
    path = _straight(path)
    is_kept = any(_is_within(path, directory) for directory in _WHOLE) and not any(
        path == folder or path.startswith(folder + os.sep) for folder in _LEFT
    )
    return _KeptFinder(path) if is_kept else _any_finder(path)


def _is_within(path: str, directory: str) -> bool:
    """And no part of what lies apart there: files of these are not kept"""
    inside = path[len(directory) :].split(os.sep)  # noqa: PTH206 - as it is in sys.path
    return path.startswith(directory) and not inside[0] and not any(map(is_apart, inside[1:]))


def is_apart(folder: str) -> bool:
    """Whether a folder beside a model has another version of it, installed packages, or nothing that is imported"""
    return folder.isdigit() or folder.startswith(".") or folder in {"__pycache__", "site-packages", "dist-packages"}


def keep(packed: str) -> None:
    """From now on the files of the model are imported as they were when the server packed them"""
    if not packed:
        return
    kept = json.loads(zlib.decompress(base64.b64decode(packed)))
    _KEPT.update((path, text.encode("latin-1")) for path, text in kept["files"].items())
    _WHOLE.update(kept["directories"])
    _LEFT.update(kept["left"])
    # whoever asks for the text of a function gets that of what runs, as TorchScript does, and tracebacks
    for path, text in _KEPT.items():
        with suppress(SyntaxError, UnicodeDecodeError):
            lines = io.StringIO(decode_source(text)).readlines()
            linecache.cache[path] = (len(text), None, lines, path)
    # whoever loads a file by its name has this loader from Python itself
    SourceFileLoader.path_stats = _stats_of_others  # type: ignore[method-assign,assignment]
    SourceFileLoader.get_data = _kept_first  # type: ignore[method-assign,assignment]
    sys.path_hooks.insert(0, _finder)
    sys.path_importer_cache.clear()
