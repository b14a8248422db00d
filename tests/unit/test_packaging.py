"""The wheel `kushi`: the package directory `runners` under another name, with the console script"""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from runners import __version__

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    script = f"from hatchling.build import build_wheel; build_wheel({str(folder)!r})"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_package_as_kushi_with_its_types(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert wheel.name == f"kushi-{__version__}-py3-none-any.whl"
    assert {name.partition("/")[0] for name in names} == {"kushi", f"kushi-{__version__}.dist-info"}
    assert {"kushi/py.typed", "kushi/repository/messages.pyi", "kushi/backends/onnxruntime/backend.py"} <= set(names)
    assert not any("__pycache__" in name for name in names)


def test_the_wheel_states_its_licence_the_native_module_and_the_extras(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    metadata = archive.read(f"kushi-{__version__}.dist-info/METADATA").decode()
    assert "Requires-Dist: kushi-native" in metadata
    assert "License-Expression: Apache-2.0" in metadata
    assert f"kushi-{__version__}.dist-info/licenses/LICENSE" in archive.namelist()
    assert "Requires-Dist: onnxruntime<1.32,>=1.31; extra == 'cpu'" in metadata
    assert "Requires-Dist: onnxruntime-gpu<1.32,>=1.31; extra == 'gpu'" in metadata
    assert "Requires-Dist: onnxruntime-ep-openvino<2,>=1.8; " in metadata
    assert "Requires-Dist: torch>=2.9; extra == 'torch'" in metadata
    for package in ("onnx>=1.20", "onnxscript>=0.5", "torch>=2.9"):
        assert f"Requires-Dist: {package}; extra == 'export'" in metadata
    assert "Requires-Dist: onnx>=1.20; extra == 'optimize'" in metadata


def test_the_installed_command_runs_beside_a_package_called_runners(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "pip", "install", "--quiet", "--no-deps", "--offline", "--target", site, wheel], check=True)
    (tmp_path / "runners").mkdir()
    (tmp_path / "runners" / "__init__.py").write_text("raise RuntimeError('the user has a package of that name')")
    paths = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": paths}

    def run(*command: str | Path) -> str:
        return subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout

    assert run(sys.executable, "-m", "kushi", "--version").strip() == f"kushi {__version__}"
    assert "--model-repository" in run(sys.executable, site / "bin" / "kushi", "serve", "--help")
    assert run(sys.executable, "-c", "import kushi; print(kushi.Engine.__module__)").strip() == "kushi.engine"
