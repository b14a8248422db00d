"""Every call of TensorRT is one that TensorRT has: checked against types made from its Python module."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving import ROOT

TYPES = ROOT / "build/stand-in"


@pytest.mark.parametrize(("version", "rules"), [("10", "mypy.ini"), ("11", "mypy.ini"), ("rtx", "mypy_rtx.ini")])
def test_the_calls_are_those_that_tensorrt_has(version: str, rules: str, tmp_path: Path) -> None:
    folder = TYPES / f"types-{version}"
    assert (folder / "tensorrt/__init__.pyi").is_file(), "made by: make test-tensorrt"
    command = [
        *(sys.executable, "-m", "mypy", "--config-file", f"tests/tensorrt/{rules}"),
        *("--cache-dir", str(tmp_path / "cache")),
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(folder), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_what_tensorrt_does_not_have_is_found(tmp_path: Path) -> None:
    program = tmp_path / "wrong.py"
    program.write_text(
        "import tensorrt as trt\n\n\ndef ask(engine: trt.ICudaEngine) -> int:\n    return engine.num_bindings\n"
    )
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), str(program)]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(TYPES / "types-10"), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 'has no attribute "num_bindings"' in done.stdout
