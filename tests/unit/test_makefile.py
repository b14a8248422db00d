"""The Makefile: what is built again when a source has changed. `make test-rebuild` builds, this one asks make alone."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.serving import ROOT

ABOVE = {"MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS"}
"""Of the make that runs the tests"""


def is_up_to_date(*options: str) -> bool:
    environment = {name: value for name, value in os.environ.items() if name not in ABOVE}
    (built,) = (ROOT / "wheels").glob(".built-*")
    command = ["make", "--question", *options, f"NATIVE_PROFILE={built.name.removeprefix('.built-')}", "setup"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    return done.returncode == 0


@pytest.mark.parametrize(
    "path",
    [
        "native/Cargo.lock",
        "native/Cargo.toml",
        "native/crates/bindings/kushi_native.pyi",
        "native/crates/bindings/pyproject.toml",
        "native/crates/core/src/lib.rs",
        "requirements/dev.txt",
        "requirements/wheel.txt",
    ],
)
def test_a_source_that_changes_is_built_again(path: str) -> None:
    assert (ROOT / path).is_file()
    assert is_up_to_date(), "make setup comes first"
    assert not is_up_to_date(f"--what-if={path}")


def test_a_source_that_nobody_builds_is_not() -> None:
    assert is_up_to_date("--what-if=runners/serve.py")
