"""`kushi new` and `kushi demo` of the installed package, in folders that know nothing of this repository"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.e2e.bento import Bento
from tests.packages.environments import BUILT, BUILT_FOR_LINUX, CLEAN, UV, install, run, venv
from tests.serving import free_port
from tests.waiting import eventually

# beside the one that runs this, as pyenv lays them out
NEWER: Final = sorted(Path(sys.base_prefix).parent.glob("3.1[2-9]*/bin/python3"))


def classified(bento: Bento, picture: Path) -> str:
    """The likeliest class"""
    with bento.client() as client:
        files = {"picture": (picture.name, picture.read_bytes(), "image/png")}
        answer: dict[str, float] = client.post("/classify", files=files).raise_for_status().json()
    return next(iter(answer))


def contents(wheel: Path) -> dict[str, bytes]:
    """Without the list of what there is, whose lines may stand in any order"""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


def test_a_new_service_is_served_and_its_bento_has_the_package(python: Path, users: Path, tmp_path: Path) -> None:
    folder, home, elsewhere = tmp_path / "colours", tmp_path / "home", tmp_path / "elsewhere"
    elsewhere.mkdir()
    run(python.with_name("kushi"), "new", "colours", cwd=users)
    with Bento(folder, python=python, PYTHONPATH="").until_ready() as bento:
        assert classified(bento, folder / "blue.png") == "blue"
    # BentoML locks with uv
    variables = {"BENTOML_HOME": str(home), "BENTOML_DO_NOT_TRACK": "True", "PATH": f"{UV.parent}:{CLEAN['PATH']}"}
    run(python.with_name("bentoml"), "build", cwd=folder, **variables)
    (built,) = home.glob("bentos/colours/*/bento.yaml")
    wheels = built.parent / "src/wheels"
    for wheel in (BUILT, BUILT_FOR_LINUX):
        assert contents(wheels / wheel.name) == contents(wheel)
    locked = (built.parent / "env/python/requirements.txt").read_text()
    wanted = {f"./wheels/{BUILT.name}", f"./wheels/{BUILT_FOR_LINUX.name}"}
    assert wanted <= {*locked.split()}
    target = tmp_path / "installed"
    run(UV, "pip", "install", "--quiet", "--no-deps", "--target", target, *wheels.glob("*.whl"), cwd=tmp_path)
    assert (target / "kushi/bento/own_wheels.py").is_file()
    assert (target / "bin/kushi").is_file()
    serving = Bento(elsewhere, "colours:latest", python=python, PYTHONPATH="", BENTOML_HOME=str(home))
    with serving.until_ready() as bento:
        assert classified(bento, folder / "blue.png") == "blue"


def test_the_demo_reads_a_page(python: Path, tmp_path: Path) -> None:
    empty, port = tmp_path / "empty", free_port()
    empty.mkdir()
    variables = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "BENTOML_DO_NOT_TRACK": "True"}
    command = [str(python.with_name("kushi")), "demo", f"--port={port}"]
    with subprocess.Popen(command, cwd=empty, env=CLEAN | variables) as demo:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                eventually(lambda: _is_ready(client) or demo.poll() is not None, "it is ready", 90)
                (letter,) = (tmp_path / "cache").rglob("letter.png")
                answer = client.post("/read/text", files={"document": ("letter.png", letter.read_bytes())})
            assert answer.raise_for_status().text.startswith("Kushi & Co.")
        finally:
            demo.send_signal(signal.SIGTERM)
    assert os.listdir(empty) == []  # noqa: PTH208 - names


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("interpreter", NEWER or [None], ids=lambda path: path.parts[-3] if path else "none")
def test_newer_pythons_have_it_too(interpreter: Path | None, tmp_path: Path) -> None:
    if interpreter is None:
        pytest.skip("no newer Python lies beside this one")
    python = venv(tmp_path / "venv", interpreter)
    install(python, f"kushi[bento,cpu,uploads] @ {BUILT.as_uri()}", "pytest")
    run(python.with_name("kushi"), "new", "colours", cwd=tmp_path)
    assert "1 passed" in run(python, "-m", "pytest", "-q", cwd=tmp_path / "colours", BENTOML_DO_NOT_TRACK="True")
