"""The real tritonserver of the package nvidia-pytriton, on any repository of Python models: what it is started with."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["PYTHON", "Tritonserver", "is_installed"]

ROOT: Final = Path(__file__).resolve().parent.parent
PYTHON: Final = ROOT / ".venv-triton/bin/python"
"""An environment of its own: `make .venv-triton/.synced`"""

_ASK: Final = """
import sys, sysconfig
from pytriton.utils.distribution import get_libs_path, get_root_module_path, get_stub_path
version = "%d.%d" % sys.version_info[:2]
server = get_root_module_path() / "tritonserver"
print(server, get_libs_path(), get_stub_path(version), sysconfig.get_config_var("LIBDIR"), sep="\\n")
"""


def is_installed() -> bool:
    find = "import importlib.util, sys; sys.exit(importlib.util.find_spec('pytriton') is None)"
    return PYTHON.exists() and subprocess.run([PYTHON, "-c", find], check=False).returncode == 0


@dataclass(frozen=True)
class Tritonserver:
    """A copy of the server whose Python backend runs models in .venv-triton's interpreter."""

    home: Path
    libraries: str

    @classmethod
    def at(cls, home: Path) -> Tritonserver:
        """`home` is an empty folder for the copy."""
        asked = subprocess.run([PYTHON, "-c", _ASK], check=True, stdout=subprocess.PIPE, text=True)
        server, libraries, stub, python_libraries = asked.stdout.split("\n")[:4]
        shutil.copytree(server, home, ignore=shutil.ignore_patterns("python_backend_stubs"), dirs_exist_ok=True)
        shutil.copy(stub, home / "backends/python/triton_python_backend_stub")
        # the stub must find the library of this Python, not another one of its version
        return cls(home, os.pathsep.join([python_libraries, libraries]))

    def command(self, repository: Path, *, http: int, grpc: int, metrics: int) -> list[str]:
        command = [str(self.home / "bin/tritonserver"), f"--model-repository={repository}"]
        command += [f"--backend-directory={self.home / 'backends'}", f"--cache-directory={self.home / 'caches'}"]
        for door, port in (("http", http), ("grpc", grpc), ("metrics", metrics)):
            command += [f"--{door}-port={port}", f"--{door}-address=127.0.0.1"]
        return command

    def environment(self) -> dict[str, str]:
        """Beside that of this process."""
        given = os.environ.get("LD_LIBRARY_PATH")
        return {
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, [self.libraries, given])),
            "PATH": os.pathsep.join([str(PYTHON.parent), os.environ["PATH"]]),
        }
