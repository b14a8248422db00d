"""The worker runs in any interpreter from CPython 3.9 on, with the standard library and NumPy."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "runners" / "worker"
FILES = sorted(FOLDER.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_syntax_is_that_of_python_3_9(file: Path) -> None:
    ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 9))


@pytest.mark.skipif(not hasattr(sys, "stdlib_module_names"), reason="this Python does not list its modules")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_nothing_but_the_standard_library_and_numpy_is_imported(file: Path) -> None:
    allowed = {"numpy", *sys.stdlib_module_names}
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert {alias.name.partition(".")[0] for alias in node.names} <= allowed
        elif isinstance(node, ast.ImportFrom):
            # nothing above its own package
            assert node.level == 1 or (node.module or "").partition(".")[0] in allowed


ALONE = """
import sys
sys.path.insert(0, sys.argv[1])
import triton_python_backend_utils
assert sys.modules["c_python_backend_utils"] is triton_python_backend_utils is sys.modules["kushi_worker.pb_utils"]
from kushi_worker import calls
assert not any(name.partition(".")[0] == "runners" for name in sys.modules)
"""


def test_the_package_is_loaded_under_a_name_of_its_own(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(FOLDER / "importable")],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
