from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.threads import cores_within, intra_op_threads, quota_cores, usable_cores


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


def test_cores_are_the_smallest_bound_rounded_down_to_at_least_one() -> None:
    assert cores_within(8, []) == 8
    assert cores_within(8, [3.9, 5.0]) == 3
    assert cores_within(8, [0.5]) == 1
    assert cores_within(2, [16.0]) == 2


def test_quota_texts_of_both_cgroup_versions() -> None:
    assert quota_cores("150000", "100000") == 1.5
    assert quota_cores("max", "100000") is None
    assert quota_cores("-1", "100000") is None
    assert quota_cores("100", "0") is None


def affinity(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_quota_of_a_group_above_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    affinity(monkeypatch, 16)
    write(tmp_path / "cgroup", "0::/kube/pod\n")
    write(tmp_path / "fs/kube/pod/cpu.max", "max 100000\n")
    write(tmp_path / "fs/kube/cpu.max", "300000 100000\n")
    assert usable_cores(tmp_path / "cgroup", tmp_path / "fs") == 3


def test_the_quota_of_version_one_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    affinity(monkeypatch, 16)
    write(tmp_path / "cgroup", "4:memory:/\n3:cpu,cpuacct:/docker/a\n")
    write(tmp_path / "fs/cpu,cpuacct/docker/a/cpu.cfs_quota_us", "200000\n")
    write(tmp_path / "fs/cpu,cpuacct/docker/a/cpu.cfs_period_us", "100000\n")
    assert usable_cores(tmp_path / "cgroup", tmp_path / "fs") == 2


def test_without_cgroups_the_affinity_mask_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    affinity(monkeypatch, 5)
    assert usable_cores(tmp_path / "cgroup", tmp_path / "fs") == 5
