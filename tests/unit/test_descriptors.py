"""How many files a process may open: each time in one of its own, since a limit that was lowered stays so."""

import subprocess
import sys

import pytest

from tests.serving import ROOT

PROGRAM = """
import logging
import resource
import sys

from runners.descriptors import allow_connections

logging.basicConfig(format="%(message)s")
soft, hard, most, kinds = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
allow_connections(most, kinds, "--http-max-connections")
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def limit_and_log(soft: int, hard: int, most: int, kinds: int) -> tuple[int, str]:
    command = [sys.executable, "-c", PROGRAM, *map(str, (soft, hard, most, kinds))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=50)
    return int(done.stdout), done.stderr.strip()


@pytest.mark.parametrize(("kinds", "limit"), [(1, 1124), (3, 1324), (40, 2000)])
def test_the_limit_is_raised_for_each_kind_of_connection_and_to_the_hard_one_at_most(kinds: int, limit: int) -> None:
    assert limit_and_log(500, 2000, 100, kinds) == (limit, "")


def test_a_limit_that_is_high_enough_stays() -> None:
    assert limit_and_log(1900, 2000, 100, 1) == (1900, "")


def test_a_hard_limit_that_is_too_low_for_one_kind_is_in_the_log() -> None:
    expected = "the system allows 1000 open files, fewer than --http-max-connections=100 may need (ulimit -Hn)"
    assert limit_and_log(500, 1000, 100, 1) == (1000, expected)
