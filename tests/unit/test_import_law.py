import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [
        Path(sys.executable).with_name("lint-imports"),
        "--no-cache",
        "--config",
        ROOT / "pyproject.toml",
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("repository/config.py", "import kushi_native"),
        ("repository/layout.py", "from ..engine import Engine"),
        ("engine.py", "from .serve import serve"),
        ("backends/onnxruntime.py", "import onnxruntime"),
        ("engine.py", "import bentoml"),
        ("errors.py", "import service"),
    ],
)
def test_a_forbidden_import_fails_the_build(tmp_path: Path, module: str, line: str) -> None:
    shutil.copytree(ROOT / "runners", tmp_path / "runners", ignore=shutil.ignore_patterns("__pycache__"))
    changed = tmp_path / "runners" / module
    changed.write_text(f"{changed.read_text()}\n{line}\n")
    done = lint(tmp_path)
    assert done.returncode == 1
    assert "BROKEN" in done.stdout
