"""Programs that use the package, in processes of their own."""

from __future__ import annotations

import subprocess
import sys

from tests.serving import ROOT

__all__ = ["run"]


def run(script: str, *arguments: object, code: int = 0) -> str:
    """The output of a program of its own, which must end with that code"""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", script, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout
