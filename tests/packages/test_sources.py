"""The source archives: what they hold is enough to build the wheels"""

from __future__ import annotations

import os
import tarfile
import time
import zipfile
from typing import TYPE_CHECKING

from runners import __version__
from tests.packages.environments import BUILT, BUILT_FOR_LINUX, DIST, NATIVE, UV, install, run, venv
from tests.serving import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def unpacked(archive: Path, folder: Path) -> Path:
    def is_new(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        # cargo takes a file with an old date for one that it has compiled
        return tarfile.data_filter(member.replace(mtime=time.time()), path)

    with tarfile.open(archive) as file:
        file.extractall(folder, filter=is_new)
    (inside,) = folder.iterdir()
    return inside


def names(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def test_kushi_is_built_from_its_sources_alone(tmp_path: Path) -> None:
    source = unpacked(DIST / f"kushi-{__version__}.tar.gz", tmp_path / "source")
    run(UV.with_name("python"), "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path, cwd=source)
    built = tmp_path / BUILT.name
    assert names(built) == names(BUILT)
    python = venv(tmp_path / "venv")
    install(python, built)
    assert run(python, "-c", "import kushi; print(kushi.Engine.__module__)", cwd=tmp_path) == "kushi.engine\n"


def test_kushi_native_is_built_from_its_sources_alone(tmp_path: Path) -> None:
    source = unpacked(NATIVE, tmp_path / "source")
    tools = ROOT / ".venv-wheel/bin"
    # compiles sooner
    profile = {"MATURIN_PEP517_ARGS": "--profile dev", "CARGO_PROFILE_DEV_DEBUG": "0", "CARGO_INCREMENTAL": "0"}
    options = {**profile, "CARGO_TARGET_DIR": str(ROOT / "native/target/sources")}
    path = os.pathsep.join([str(tools), os.environ["PATH"]])
    build = ("build", "--quiet", "--wheel", "--no-build-isolation", "--python", tools / "python", "--out-dir", tmp_path)
    run(UV, *build, source, cwd=tmp_path, PATH=path, **options)
    (built,) = tmp_path.glob("*.whl")
    assert names(built) == names(BUILT_FOR_LINUX)
    python = venv(tmp_path / "venv")
    run(UV, "pip", "install", "--quiet", "--no-deps", "--python", python, built, cwd=tmp_path)
    assert run(python, "-c", "import kushi_native; print(bool(kushi_native.BUILD_LABEL))", cwd=tmp_path) == "True\n"
