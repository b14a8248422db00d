"""
What the tests for GPUs need of the machine that they run on: `python -m tests.gpu_machine` says what is there, or fails
with the names of what is missing. `.ci/test-gpu` begins with it.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Final

__all__ = ["check", "missing"]

NEEDED: Final = (
    *("kushi_native", "numpy", "google.protobuf", "pydantic", "tritonclient", "ml_dtypes", "onnx"),
    *("pytest", "pytest_randomly", "pytest_timeout", "xdist", "torch"),
)


def missing(modules: Iterable[str]) -> Iterator[str]:
    """Those that cannot be imported, each with the reason"""
    for module in modules:
        try:
            import_module(module)
        except (ImportError, OSError) as error:
            yield f"{module}: {error}"


def check() -> None:
    """Says what is there"""
    faults = list(missing(NEEDED))
    if faults:
        raise SystemExit("\n".join(["missing here:", *faults]))
    torch = import_module("torch")
    lines = [f"Python {platform.python_version()}, PyTorch {torch.__version__} for CUDA {torch.version.cuda}"]
    if not torch.cuda.is_available():
        raise SystemExit(f"{lines[0]}\nPyTorch sees no GPU here: look at nvidia-smi and CUDA_VISIBLE_DEVICES")
    for index in range(torch.cuda.device_count()):
        seen = torch.cuda.get_device_properties(index)
        lines.append(f"GPU {index}: {seen.name}, {seen.total_memory >> 30} GiB, compute {seen.major}.{seen.minor}")
    sys.stdout.write("\n".join([*lines, ""]))


if __name__ == "__main__":
    check()
