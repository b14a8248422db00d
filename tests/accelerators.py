"""
Tests that need an accelerator, marked ``gpu``, and those that need a package beside it, marked ``needs("its-name")``.

They run where they are asked for with ``--gpu``, and fail there if something is missing. With ``--skip-missing`` those
are skipped, by name, whose package is not installed.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["add_options", "is_installed", "mark_skipped", "reason_to_skip"]


def add_options(parser: pytest.Parser) -> None:
    parser.addoption("--gpu", action="store_true", help="run the tests that need a GPU")
    parser.addoption("--skip-missing", action="store_true", help="with --gpu: skip tests whose package is missing")


def mark_skipped(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("gpu"):
            packages = [marker.args[0] for marker in item.iter_markers("needs")]
            asked, skips = config.getoption("--gpu"), config.getoption("--skip-missing")
            if reason := reason_to_skip(packages, asked=asked, skips_missing=skips, installed=is_installed):
                item.add_marker(pytest.mark.skip(reason=reason))


def reason_to_skip(
    packages: Iterable[str], *, asked: bool, skips_missing: bool, installed: Callable[[str], bool]
) -> str:
    """Why a test that needs a GPU and these packages does not run; nothing where it does"""
    if not asked:
        return "needs a GPU: --gpu"
    missing = sorted(name for name in set(packages) if not installed(name)) if skips_missing else []
    return f"needs {' and '.join(missing)}, not installed here" if missing else ""


def is_installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True
