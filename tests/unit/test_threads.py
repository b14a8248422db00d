import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.threads import intra_op_threads, usable_cores
from tests.forks import forked


@pytest.mark.parametrize(
    ("asked", "measured", "instances", "cores", "threads"),
    [
        pytest.param(3, 0.0001, 8, 2, 3, id="what is asked for wins"),
        pytest.param(0, 0.0009, 1, 16, 1, id="a short model gets one"),
        pytest.param(0, 0.001, 1, 16, 16, id="a long one gets all cores"),
        pytest.param(0, 0.5, 4, 16, 4, id="shared by the instances"),
        pytest.param(0, 0.5, 3, 8, 2, id="rounded down"),
        pytest.param(0, 0.5, 8, 2, 1, id="never less than one"),
        pytest.param(0, None, 2, 8, 4, id="what could not be measured counts as long"),
    ],
)
def test_intra_op_threads(asked: int, measured: float | None, instances: int, cores: int, threads: int) -> None:
    assert intra_op_threads(asked, measured, instances, cores) == threads


@given(st.floats(0.001, 10), st.integers(1, 64), st.integers(1, 128))
def test_the_budget_holds_unless_there_are_more_instances_than_cores(s: float, instances: int, cores: int) -> None:
    threads = intra_op_threads(0, s, instances, cores)
    assert threads == 1 or threads * instances <= cores


@pytest.mark.alone
def test_cores_that_the_affinity_mask_leaves_out_are_not_usable() -> None:
    cores = os.sched_getaffinity(0)

    def child() -> str:
        os.sched_setaffinity(0, {min(cores)})
        return str(usable_cores())

    assert forked(child) == "1"
    assert 1 <= usable_cores() <= len(cores)


CPU_GROUPS = Path("/sys/fs/cgroup/cpu")
PROGRAM = "from runners.threads import usable_cores; print(usable_cores())"


@pytest.fixture
def group() -> Iterator[Path]:
    """A cgroup below one that allows a processor and a half"""
    above = CPU_GROUPS / f"kushi-{os.getpid()}"
    below = above / "below"
    try:
        below.mkdir(parents=True)
        (above / "cpu.cfs_quota_us").write_text("150000")
    except OSError as error:
        pytest.skip(f"cgroups of version 1 cannot be made here: {error}")
    yield below
    below.rmdir()
    above.rmdir()


def test_the_quota_of_a_cgroup_above_counts(group: Path) -> None:
    enter = 'echo $$ > "$0" && exec "$@"'
    command = ["sh", "-c", enter, str(group / "cgroup.procs"), sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
