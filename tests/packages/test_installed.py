"""The wheels in a fresh environment: the commands, an engine in process, a server, types"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
from tritonclient import http

from runners import __version__
from tests import models
from tests.packages.environments import BUILT, BUILT_FOR_LINUX, CLEAN, run
from tests.raw_http import fetch
from tests.serving import START_S, STOP_S, free_port
from tests.waiting import eventually

_PROGRAM: Final = """
import numpy as np
import kushi
import runners

rows = np.arange(16, dtype=np.int32)[None]
with kushi.Engine("models") as engine:
    print(engine.add_sub.run(rows, rows)["OUTPUT0"].sum(), kushi.__version__, runners.OWNER)
"""
_TYPED: Final = """
import kushi
import kushi_native

reveal_type(kushi.Engine("models").infer)
reveal_type(kushi_native.BUILD_LABEL)
kushi.Engine(models=3)
"""
# as Python code, a command or a path name it
_IN_REPOSITORY: Final = re.compile(r"""(from|import|-m)["',\s]+runners\b|\brunners[./]|["']runners["']""")


def test_the_native_module_is_the_one_of_dist(python: Path, users: Path) -> None:
    found = run(python, "-c", "import kushi_native.kushi_native as native; print(native.__file__)", cwd=users).strip()
    packed = zipfile.ZipFile(BUILT_FOR_LINUX).read("kushi_native/kushi_native.abi3.so")
    assert Path(found).read_bytes() == packed


def test_the_commands_say_who_they_are(python: Path, users: Path) -> None:
    kushi = python.with_name("kushi")
    assert run(kushi, "--version", cwd=users) == f"kushi {__version__}\n"
    assert run(python, "-m", "kushi", "--version", cwd=users) == f"kushi {__version__}\n"
    assert re.search(r"serve .*\n +check ", run(kushi, "--help", cwd=users))
    assert "--model-repository" in run(kushi, "serve", "--help", cwd=users)
    assert run(kushi, "export", "--help", cwd=users).startswith("usage: kushi export")


def test_an_engine_runs_in_a_program_beside_a_package_called_runners(python: Path, users: Path) -> None:
    models.write_add_sub(users / "models")
    (users / "program.py").write_text(_PROGRAM, encoding="utf-8")
    assert run(python, "program.py", cwd=users) == f"240 {__version__} the user\n"


def test_a_server_answers_tritonclient(python: Path, users: Path) -> None:
    models.write_add_sub(users / "models")
    port = free_port()
    places = ["--model-repository=models", "--http-address=127.0.0.1", f"--http-port={port}", "--allow-metrics=false"]
    with (users / "log").open("wb") as log:
        process = subprocess.Popen([python.with_name("kushi"), "serve", *places], cwd=users, env=CLEAN, stderr=log)
    try:
        eventually(lambda: _is_ready(port) or process.poll() is not None, "the server is ready", START_S)
        with http.InferenceServerClient(f"127.0.0.1:{port}") as client:
            rows = np.arange(16, dtype=np.int32)[None]
            names = ("INPUT0", "INPUT1")
            inputs = [http.InferInput(name, [1, 16], "INT32").set_data_from_numpy(rows) for name in names]
            np.testing.assert_array_equal(client.infer("add_sub", inputs).as_numpy("OUTPUT0"), rows + rows)
        process.terminate()
        assert process.wait(STOP_S) == 0, (users / "log").read_text(encoding="utf-8")
    finally:
        process.kill()
        process.wait()


def _is_ready(port: int) -> bool:
    with suppress(OSError):
        return fetch(("127.0.0.1", port), "GET", "/v2/health/ready").status == 200
    return False


def test_the_types_are_found(python: Path, users: Path) -> None:
    (users / "program.py").write_text(_TYPED, encoding="utf-8")
    command: list[str | Path] = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "program.py"]
    done = subprocess.run(command, cwd=users, env=CLEAN, capture_output=True, text=True, check=False)
    first, second, third, *_ = done.stdout.splitlines()
    assert re.search(r'5: note: Revealed type is ".*-> kushi_native\.Result"', first), done.stdout
    assert re.search(r'6: note: Revealed type is "(builtins\.)?str"', second), done.stdout
    assert re.search(r"7: error: .*\[call-arg\]", third), done.stdout


def test_nothing_in_the_wheel_speaks_of_the_package_by_its_name_in_the_repository() -> None:
    archive = zipfile.ZipFile(BUILT)
    for name in archive.namelist():
        # what is written from those folders gets the other name: `kushi new`
        if name.startswith("kushi/") and "/reader_files/" not in name:
            assert not _IN_REPOSITORY.findall(archive.read(name).decode(errors="replace")), name
