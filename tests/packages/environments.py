"""Fresh environments, and programs in them that know nothing of this repository"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from runners import __version__
from tests.serving import ROOT

__all__ = ["BUILT", "BUILT_FOR_LINUX", "CLEAN", "DIST", "NATIVE", "SUPPLY", "UV", "install", "run", "venv"]

DIST: Final = ROOT / "dist"
# made by `make dist`; a test that finds no such file fails
BUILT: Final = DIST / f"kushi-{__version__}-py3-none-any.whl"
BUILT_FOR_LINUX: Final = DIST / f"kushi_native-{__version__}-cp311-abi3-manylinux_2_28_x86_64.whl"
NATIVE: Final = DIST / f"kushi_native-{__version__}.tar.gz"
SUPPLY: Final = ROOT / ".venv-supply/bin"
UV: Final = Path(sys.executable).with_name("uv")
_PRIVATE: Final = ("KUSHI_", "PYTHON", "VIRTUAL_ENV", "BENTOML", "PYTEST")
CLEAN: Final = {key: value for key, value in os.environ.items() if not key.startswith(_PRIVATE)}


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """What a program prints that ends well"""
    environment = CLEAN | variables
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


def venv(folder: Path, base: Path | None = None) -> Path:
    """The Python of a new environment; without another interpreter, of the one that runs this"""
    own: str = sys._base_executable  # type: ignore[attr-defined]  # as venv reads it
    run(UV, "venv", "--quiet", "--python", base or own, folder, cwd=ROOT)
    return folder / "bin" / "python"


def install(python: Path, *requirements: str | Path) -> None:
    """As a user does, from dist/ and the registry, with the versions of others that the tests are locked to"""
    found = ("--find-links", DIST, "--constraint", ROOT / "requirements/dev.txt")
    # Their version stays when they are built anew, and what uv had of it before would be installed.
    fresh = ("--refresh-package", "kushi", "--refresh-package", "kushi-native")
    run(UV, "pip", "install", "--quiet", "--python", python, *found, *fresh, *requirements, cwd=DIST)
