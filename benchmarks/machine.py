"""The machine that a figure was measured on: a number without it means nothing."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from importlib import metadata
from pathlib import Path

__all__ = ["describe", "doubts"]

FOREIGN_CORES = 0.1


def describe() -> dict[str, str]:
    return {
        "date": time.strftime("%Y-%m-%d"),
        "CPU": f"{_cpu_model()}, {len(os.sched_getaffinity(0))} cores usable of {os.cpu_count()}",
        "memory": _memory(),
        "kernel": platform.release(),
        "Python": platform.python_version(),
        "kushi-native": _version("kushi-native"),
        "onnxruntime": _version("onnxruntime"),
        "g++": _compiler(),
        "load average at the start": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }


def doubts(foreign_cores: float) -> tuple[str, ...]:
    """What to say beside figures that other programs disturbed."""
    if foreign_cores <= FOREIGN_CORES:
        return ()
    return (f"**Disturbed: {foreign_cores:.2f} cores were busy with something else. Only CPU times stand.**",)


def _cpu_model() -> str:
    with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def _memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _compiler() -> str:
    if shutil.which("g++") is None:
        return "not installed"
    return subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
