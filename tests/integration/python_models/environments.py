"""Environments of Python models, made without a network, and a model that says where it runs"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

import numpy as np

from runners import Engine
from tests.integration.python_models import models

__all__ = ["OUTER", "environment", "packed", "requirements", "where", "write", "write_wheel"]

OUTER: Final = Path(np.__file__).parents[1]
"""Where NumPy is, for environments that link to it"""

WHERE: Final = """
import importlib.util
import json
import os
import sys

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        said = {
            "prefix": sys.prefix,
            "variables": dict(os.environ),
            "has_extra": importlib.util.find_spec("extra") is not None,
        }
        text = np.array([json.dumps(said)], np.object_)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SAID", text)]) for _ in requests]
"""

CONFIG: Final = """
backend: "python"
input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "SAID" data_type: TYPE_STRING dims: [ 1 ] } ]
"""


def write(repository: Path, name: str = "m", extra: str = "", **parameters: str) -> None:
    """A model that says where it runs; a parameter with `__` has a point there."""
    stated = [
        f'parameters {{ key: "{key.replace("__", ".")}" value {{ string_value: "{value}" }} }}'
        for key, value in parameters.items()
    ]
    models.write(repository, name, WHERE, "\n".join([CONFIG, extra, *stated]))


def where(engine: Engine, name: str = "m") -> dict[str, Any]:
    (said,) = engine.infer(name, np.zeros(1, np.float32))["SAID"]
    found: dict[str, Any] = json.loads(said)
    return found


def environment(place: Path) -> Path:
    """A virtual environment with the NumPy of this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "outer.pth").write_text(str(OUTER), encoding="utf-8")
    return place


CONDA_UNPACK: Final = """
import sys
from pathlib import Path

with Path(sys.prefix, "unpacked").open("a") as file:
    print(sys.prefix, file=file)
"""


def packed(folder: Path, archive: Path, unpack: str = CONDA_UNPACK) -> Path:
    """An archive as conda-pack makes it, of an environment that is not there any more."""
    place = environment(folder / "packed")
    (place / "conda-meta").mkdir()
    (place / "bin" / "conda-unpack").write_text(unpack, encoding="utf-8")
    scripts = place / "etc" / "conda" / "activate.d"
    scripts.mkdir(parents=True)
    (scripts / "data.sh").write_text('export EXTRA_DATA="$CONDA_PREFIX/share/extra data"\n', encoding="utf-8")
    with tarfile.open(archive, "w:gz") as file:
        for path in sorted(place.iterdir()):
            file.add(path, path.name)
    shutil.rmtree(place)
    return archive


def write_wheel(folder: Path, name: str, files: dict[str, str]) -> Path:
    """A wheel with these files."""
    about = {
        f"{name}-1.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n",
        f"{name}-1.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = f"{name}-1.dist-info/RECORD"
    content = {**files, **about}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-1-py3-none-any.whl"
    with ZipFile(path, "w") as wheel:
        for file, text in content.items():
            wheel.writestr(file, text)
        wheel.writestr(record, "".join(f"{file},,\n" for file in [*content, record]))
    return path


def requirements(folder: Path, *lines: str, with_numpy: bool = True) -> Path:
    """A requirements file whose packages lie beside it: `extra`, and one that links to NumPy."""
    folder.mkdir(parents=True, exist_ok=True)
    wheels = folder / "wheels"
    write_wheel(wheels, "extra", {"extra.py": "VALUE = 1\n"})
    write_wheel(wheels, "linked_numpy", {"linked_numpy.pth": f"{OUTER}\n"})
    numpy = ["linked_numpy"] if with_numpy else []
    file = folder / "requirements.txt"
    file.write_text("\n".join(["--no-index", "--find-links wheels", "extra", *numpy, *lines, ""]), encoding="utf-8")
    return file
