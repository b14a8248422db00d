"""Archives of environments, as conda-pack makes them: unpacked once"""

import hashlib
import lzma
import tarfile
import zlib
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import ConfigInvalid
from .activation import program_of, variables_of
from .command import run
from .progress import reported
from .store import made_once

__all__ = ["unpacked"]

_BROKEN = (OSError, EOFError, tarfile.TarError, zlib.error, lzma.LZMAError)


def unpacked(archive: Path) -> Path:
    """The directory of an archive; an archive that has changed is another one"""
    stat = archive.stat()
    name = hashlib.sha256(f"{archive.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()[:32]
    return made_once(name, f"the environment of '{archive}'", partial(_unpack, archive))


def _unpack(archive: Path, place: Path) -> None:
    # older releases of 3.11 have no filters, and do what this one does not forbid
    options: dict[str, Any] = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
    try:
        with reported(lambda: f"unpacking '{archive}'"), tarfile.open(archive) as file:
            file.extractall(place, **options)  # noqa: S202 - its code is run in any case
    except _BROKEN as error:
        raise ConfigInvalid(f"'{archive}' cannot be unpacked: {error}") from error
    script, program = place / "bin" / "conda-unpack", program_of(place)
    # makes the paths in its files those of this place
    if script.is_file() and program:
        what = f"the environment of '{archive}'"
        run([str(program), str(script)], place, what, variables=dict(variables_of(place)))
