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
        ("preprocessing/images.py", "import bentoml"),
        ("preprocessing/digits.py", "from runners.engine import Engine"),
        ("preprocessing/audio.py", "import kushi_native"),
        ("runners/repository/config.py", "import kushi_native"),
        ("runners/repository/layout.py", "from ..engine import Engine"),
        ("runners/engine.py", "from .serve import serve"),
        ("runners/backends/onnxruntime/backend.py", "import onnxruntime"),
        ("runners/engine.py", "import bentoml"),
        ("runners/engine.py", "import preprocessing.images"),
        ("runners/errors.py", "import service"),
        ("runners/calls.py", "from .engine import Engine"),
        ("runners/client.py", "from .engine import Engine"),
        ("runners/management.py", "import tritonclient.http"),
        ("runners/model.py", "from .calls import Calls"),
        ("runners/triton/runner.py", "import bentoml"),
        ("runners/triton/runner.py", "from ..serve import serve"),
    ],
)
def test_a_forbidden_import_fails_the_build(tmp_path: Path, module: str, line: str) -> None:
    for package in ("preprocessing", "runners"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    changed = tmp_path / module
    changed.write_text(f"{changed.read_text()}\n{line}\n")
    done = lint(tmp_path)
    assert done.returncode == 1
    assert "BROKEN" in done.stdout


def test_the_package_is_imported_without_what_only_some_programs_need() -> None:
    program = (
        "import runners, sys; print(*{'grpc', 'numpy', 'onnxruntime', 'torch', 'tritonclient'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
