"""
The order of tests is random, and the same for the same tree: its seed is the hash that git has of the tree.

So a run of a commit can be repeated, and each commit has another order. `--fresh` draws one, for scheduled runs, and
lets Hypothesis draw new examples.
"""

from __future__ import annotations

import subprocess
from random import SystemRandom
from typing import TYPE_CHECKING

from tests.serving import ROOT

if TYPE_CHECKING:
    import pytest

__all__ = ["add_options", "choose"]


def add_options(parser: pytest.Parser) -> None:
    parser.addoption(
        "--hostile-seconds", type=float, help="how long clients break the rules in tests/e2e/test_hostile.py"
    )
    parser.addoption("--fresh", action="store_true", help="another order and other examples than the tree's")


def choose(config: pytest.Config) -> None:
    """Of processes that run a part of the tests, the one that has begun them has chosen"""
    fresh = bool(config.getoption("--fresh"))
    if not hasattr(config, "workerinput") and config.getoption("randomly_seed", None) == "default":
        config.option.randomly_seed = SystemRandom().getrandbits(32) if fresh else seed_of_tree()
    try:
        from hypothesis import settings  # noqa: PLC0415 - not in every environment
    except ImportError:
        return
    settings.register_profile("tree", deadline=None, derandomize=True, print_blob=True)
    settings.register_profile("fresh", deadline=None, print_blob=True)
    settings.load_profile("fresh" if fresh else "tree")


def seed_of_tree() -> int:
    """Where there is no repository of git: 0"""
    command = ["git", "rev-parse", "HEAD^{tree}"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(done.stdout[:8], 16)
