"""
Environments made of a requirements file, with uv where there is one, else with venv and pip.

Of two files with the same content, for the same interpreter, there is one environment; what a file names beside itself,
as a wheel, belongs to its content.
"""

import hashlib
import logging
import os
import re
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path

from ...errors import ConfigInvalid
from ...repository.files import read_file
from ...wanted import check_wanted
from .command import output_of, run
from .store import made_once

__all__ = ["environment_of"]

_LOG = logging.getLogger(__name__)
# within a line: a text of white space is looked at once
_ALSO = re.compile(rb"^[ \t]*(?:-r|-c|--requirement|--constraint)[ \t=]*(\S+)", re.MULTILINE)
_COMMENT = re.compile(rb"(?:^|(?<=\s))#[^\n]*")
# paths also where they look like names: of sources, and of a directory that packages are taken from
_SOURCE = re.compile(rb"^[ \t]*(?:-e|--editable)[ \t=]*(\S+)", re.MULTILINE)
_STOCK = re.compile(rb"^[ \t]*(?:-f|--find-links)[ \t=]*(\S+)", re.MULTILINE)
# what may be the path of a package
_WORD = re.compile(rb"[^\s,;\"']+")
_MOST_FILES = 100
# of directories; of those for which less is left it counts when something in themselves has changed
_MOST_LOCAL_FILES = 10_000
_MOST_NAME = 4096
_IDENTITY = (
    "import platform, sys, sysconfig\n"
    "print(sys.base_prefix, sys.version, sysconfig.get_platform(), platform.libc_ver())"
)
_IDENTITY_SECONDS = 60


def environment_of(file: Path, program: Path) -> Path:
    """The directory of the environment that a requirements file describes, for this interpreter"""
    digest = hashlib.sha256(_identity(program))
    for content in _contents(file):
        digest.update(len(content).to_bytes(8, "little") + content)
    return made_once(digest.hexdigest()[:32], f"the environment of '{file}'", partial(_make, file, program))


def _identity(program: Path) -> bytes:
    """What the packages of an interpreter depend on"""
    try:
        return output_of([str(program), "-I", "-c", _IDENTITY], _IDENTITY_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigInvalid(f"the interpreter '{program}' cannot be used: {error}") from error


def _contents(file: Path) -> Iterator[bytes]:
    """Those of the file, and of the files that it includes"""
    waiting, seen = [file], {file}
    while waiting:
        one = waiting.pop()
        try:
            content = read_file(one, "requirements file")
        except OSError as error:
            raise ConfigInvalid(f"requirements file '{one}' cannot be read: {error.strerror or error}") from None
        yield content
        yield from _local(one.parent, content)
        included = {one.parent / name.decode(errors="replace") for name in _ALSO.findall(content)}
        more = sorted(path for path in included - seen if os.path.lexists(path) and not path.is_dir())
        seen.update(more)
        if len(seen) > _MOST_FILES:
            raise ConfigInvalid(f"'{file}' includes more than {_MOST_FILES} files")
        waiting += more


def _local(directory: Path, content: bytes) -> Iterator[bytes]:
    """What packages are that lines name by a path: where, how long and how old; of a stock, what there is"""
    included, sources, stocks = ({*kind.findall(content)} for kind in (_ALSO, _SOURCE, _STOCK))
    left = _MOST_LOCAL_FILES
    paths = sources | stocks
    words = (*_WORD.findall(_COMMENT.sub(b"", content)), *sorted(paths))
    for word in dict.fromkeys(words):
        check_wanted()
        name = word.decode(errors="replace").partition("#")[0].removeprefix("file://").removeprefix("file:")
        # a name alone is that of a package
        is_path = word in paths or name.startswith(".") or "/" in name or bool(Path(name).suffix)
        if word in included or not is_path or len(name) > _MOST_NAME:
            continue
        path = directory / name
        # of most words nothing is there, or nothing can be: a URL with a long token is no path
        with suppress(OSError, ValueError):
            path.stat()
            inside = list(islice(path.rglob("*"), left)) if path.is_dir() else []
            left, inside = left - len(inside), sorted(inside) if len(inside) < left else []
            for file in inside if word in stocks and inside else (path, *inside):
                about = file.stat()
                # copies of a stock are the same
                said = file.name if word in stocks else f"{file.resolve()} {about.st_mtime_ns}"
                yield f"{said} {about.st_size}".encode(errors="replace")


def _make(file: Path, program: Path, place: Path) -> None:
    what = f"the environment of '{file}'"
    begun = time.monotonic()
    python = str(place / "bin" / "python")
    uv = _uv()
    _LOG.info("%s is made with %s", what, "uv" if uv else "pip")
    for command in _with_uv(uv, file, program, place) if uv else _with_pip(file, program, place):
        run(command, file.parent, what)
    try:
        run([python, "-c", "import numpy"], file.parent, what)
    except ConfigInvalid as error:
        raise ConfigInvalid(f"{what} has no NumPy, which every Python model needs: add a line 'numpy'") from error
    _LOG.info("%s is made, in %.1f s", what, time.monotonic() - begun)


def _uv() -> str | None:
    """That of our own environment, else the one in PATH"""
    return shutil.which("uv", path=sysconfig.get_path("scripts")) or shutil.which("uv")


def _with_uv(uv: str, file: Path, program: Path, place: Path) -> Iterator[list[str]]:
    plain = [uv, "--color", "never", "--no-progress"]
    yield [*plain, "venv", "--no-project", "--python", str(program), str(place)]
    yield [*plain, "pip", "install", "--python", str(place / "bin" / "python"), "--requirement", str(file)]


def _with_pip(file: Path, program: Path, place: Path) -> Iterator[list[str]]:
    yield [str(program), "-m", "venv", str(place)]
    pip = [str(place / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    yield [*pip, "install", "--requirement", str(file)]
