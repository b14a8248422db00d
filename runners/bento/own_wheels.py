"""
Kushi as it is installed here, as wheels.

So an image has what served on its author's machine, whether an index of packages has it or not.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from bentoml.exceptions import BentoMLException
from packaging.requirements import Requirement

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FOLDER", "own_wheels"]

FOLDER: Final = "wheels"
"""Where BentoML takes wheels from: in the sources of a Bento"""

_PACKAGE: Final = Path(__file__).resolve().parents[1]
_NATIVE: Final = "kushi-native"
# what an installer writes of its own
_OF_INSTALLERS: Final = {"INSTALLER", "RECORD", "REQUESTED", "direct_url.json", "uv_cache.json"}
_NO_DATE: Final = (1980, 1, 1, 0, 0, 0)


def own_wheels(sources: Path) -> list[str]:
    """Writes them into the sources of a Bento, and answers the requirements of its image"""
    folder = sources / FOLDER
    folder.mkdir(exist_ok=True)
    try:
        kushi = _packed(distribution("kushi"), folder)
    except PackageNotFoundError:
        kushi = _built(folder)
    names = [kushi, _packed(distribution(_NATIVE), folder)]
    return [*(f"./{FOLDER}/{name}" for name in names), *_of_services(folder / kushi)]


def _packed(found: Distribution, folder: Path) -> str:
    """The wheel that it was installed from, made again of its files: its name"""
    files = {str(path): path.locate() for path in found.files or () if _is_packed(Path(path))}
    about = next(path for path in files if path.endswith(".dist-info/WHEEL"))
    tags = re.findall(r"^Tag: (\S+)", Path(files[about]).read_text(encoding="utf-8"), re.MULTILINE)
    joined = "-".join(".".join(dict.fromkeys(parts)) for parts in zip(*(tag.split("-") for tag in tags), strict=True))
    name = f"{found.name.replace('-', '_')}-{found.version}-{joined}.whl"
    record = about.replace("WHEEL", "RECORD")
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
        lines = []
        for path, place in sorted(files.items()):
            data = Path(place).read_bytes()
            archive.writestr(_entry(path), data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{path},sha256={digest},{len(data)}\n")
        archive.writestr(_entry(record), "".join([*lines, f"{record},,\n"]))
    return name


def _is_packed(path: Path) -> bool:
    # scripts lie beside the packages, and are made when it is installed
    return path.suffix != ".pyc" and path.name not in _OF_INSTALLERS and ".." not in path.parts


def _entry(path: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(path, _NO_DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o100644 << 16
    return entry


def _built(folder: Path) -> str:
    """Of a checkout, which is used without being installed"""
    with TemporaryDirectory() as made:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", made]
        done = subprocess.run(command, cwd=_PACKAGE.parent, capture_output=True, text=True, check=False)  # noqa: S603 - ours
        if done.returncode:
            raise BentoMLException(f"kushi is not installed, and its wheel cannot be made:\n{done.stderr}")
        (wheel,) = Path(made).iterdir()
        shutil.copy(wheel, folder)
        return wheel.name


def _of_services(wheel: Path) -> Iterator[str]:
    """What the extra `bento` asks for"""
    with zipfile.ZipFile(wheel) as archive:
        about = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        text = archive.read(about).decode()
    for line in re.findall(r"^Requires-Dist: (.*)", text, re.MULTILINE):
        requirement = Requirement(line)
        marker, requirement.marker = requirement.marker, None
        if marker and marker.evaluate({"extra": "bento"}) and not marker.evaluate({"extra": ""}):
            yield str(requirement)
