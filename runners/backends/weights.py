"""
Files beside a model from which a runtime takes weights by itself: regular files in the directory of the model, and no
links out of it. A runtime would wait for a pipe, and answer with what lies elsewhere on the host.

Where the file of the model is a link itself, as in caches that keep contents apart from names, its weights may also lie
where it leads.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath

import kushi_native

from ..errors import ConfigInvalid
from ..repository.files import check_file, is_within

__all__ = ["check_weights"]

_MOST_NAME = 64 * 1024
_MEMORY = "_ORT_MEM_ADDR_"
"""Runtimes give each other weights by a name with this in it and an address; no file has such a name"""


def check_weights(path: Path, beside: Iterable[str] = ()) -> Sequence[Path]:
    """
    Of the model at `path`, whatever its format, and those that its backend looks for beside it, where they are. Answers
    which these are
    """
    if path.is_dir():
        graph = Path(os.path.realpath(path / "saved_model.pb"))
        for name in _all_below(path):
            _check(f"model '{path}'", path, name, graph.parent)
        return ()
    if not path.is_file():
        return ()
    names = [name for name in beside if os.path.lexists(path.parent / name)]
    names += dict.fromkeys(_external_files(path))
    for name in names:
        _check(f"model '{path}'", path.parent, name, Path(os.path.realpath(path)).parent)
    return [path.parent / name for name in names]


def _check(subject: str, directory: Path, name: str, target: Path) -> None:
    shown = name[:200].encode("utf-8", "replace").decode()
    fault = f"{subject} cannot be loaded: external data '{shown}'"
    # no more than that of a name is read
    if len(name.encode("utf-8", "replace")) >= _MOST_NAME:
        raise ConfigInvalid(f"{fault} has a name of {_MOST_NAME} bytes or more")
    if _MEMORY in name:
        raise ConfigInvalid(f"{fault} is an address in memory")
    file = directory / name
    if PurePath(name).is_absolute() or not (is_within(file, directory) or is_within(file, target)):
        raise ConfigInvalid(f"{fault} is not in the directory of the model")
    try:
        # a link to a directory has been seen above, and what is behind it is seen there
        if not (file.is_symlink() and file.is_dir()):
            check_file(file)
    except OSError as error:
        raise ConfigInvalid(f"{fault}: {error.strerror or error}") from None


def _external_files(path: Path) -> Iterator[str]:
    """As they are written, and as OpenVINO reads them"""
    directory = path.parent
    for name in kushi_native.onnx_external_files(path):
        yield name
        read = name.partition(":")[2] if ":" in name else name
        read = read.lstrip("/.\\")
        if read != name and os.path.lexists(directory / read):
            yield read


def _all_below(directory: Path) -> Iterator[str]:
    """Files, and links to directories: what is behind those is seen where they lead"""
    for folder, folders, names in os.walk(directory):
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in (*names, *links):
            yield str(Path(folder, name).relative_to(directory))
