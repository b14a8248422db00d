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
        ("preprocessing/pages.py", "import bentoml"),
        ("preprocessing/boxes.py", "from runners.engine import Engine"),
        ("preprocessing/words.py", "import kushi_native"),
        ("runners/uploads/images.py", "import bentoml"),
        ("runners/uploads/audio.py", "from ..errors import InvalidInput"),
        ("runners/repository/config.py", "import kushi_native"),
        ("runners/repository/layout.py", "from ..engine import Engine"),
        ("runners/repository/layout.py", "from ..settings import EngineOptions"),
        ("runners/settings/engine.py", "import kushi_native"),
        ("runners/settings/engine.py", "from ..engine import Engine"),
        ("runners/doors.py", "from .serve import serve"),
        ("runners/engine.py", "from .serve import serve"),
        ("runners/backends/onnxruntime/backend.py", "import onnxruntime"),
        ("runners/backends/onnxruntime/descriptor.py", "from .library import start"),
        ("runners/backends/torch/descriptor.py", "import torch"),
        ("runners/backends/steps.py", "import kushi_native"),
        ("runners/engine.py", "import bentoml"),
        ("runners/engine.py", "import preprocessing.pages"),
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


@pytest.mark.parametrize(
    "path", ["runners/bento/web/edge.py", "runners/triton/runner.py", "service.py", "runners/uploads/images.py"]
)
@pytest.mark.parametrize(
    "program",
    [
        "import _bentoml_sdk",
        "from _bentoml_impl.serde import ALL_SERDE",
        "from bentoml._internal.context import trace_context",
        "from bentoml import serving",
        "import bentoml\n\nbentoml.serving.create_watcher",
        "def later():\n    import circus.arbiter",
    ],
)
def test_what_bentoml_keeps_to_itself_is_imported_in_one_place(path: str, program: str) -> None:
    def lint(path: str) -> subprocess.CompletedProcess[str]:
        ruff = str(Path(sys.executable).with_name("ruff"))
        command = [ruff, "check", "--select", "TID251", "--stdin-filename", path, "-"]
        return subprocess.run(command, cwd=ROOT, input=f"{program}\n", capture_output=True, text=True, check=False)

    assert "ask runners.bento.internals" in lint(path).stdout
    assert lint("runners/bento/internals/server.py").returncode == 0


WITHOUT_NATIVE_CODE = """
import sys
sys.modules["kushi_native"] = None
from runners.repository.discovery import descriptors
print(*descriptors())
print(*{"numpy", "onnxruntime", "tensorflow", "torch"} & set(sys.modules))
"""


def test_what_backends_say_of_themselves_is_read_without_native_code_and_frameworks() -> None:
    command = [sys.executable, "-c", WITHOUT_NATIVE_CODE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (
        "tensorflow tensorrt onnxruntime openvino pytorch python fil openvino_genai\n\n",
        "",
    )


def test_the_package_is_imported_without_what_only_some_programs_need() -> None:
    program = (
        "import runners, sys; print(*{'grpc', 'numpy', 'onnxruntime', 'torch', 'tritonclient'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
