"""Which of the plans that were built here stay."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runners.backends.tensorrt.kept import KEPT_PLANS, kept_name, mark_used, remove_unused, timings_name
from runners.backends.tensorrt.recipe import Recipe

DAY = 24 * 3600


def keep(folder: Path, content: str, gpu: str = "NVIDIA H100 80GB HBM3", used: float = 0) -> Path:
    name = kept_name(content, Recipe(), version=(10, 14, 1, 48), gpu=gpu, compute_capability="9.0")
    path = folder / name
    path.write_bytes(b"a plan")
    os.utime(path, (used, used))
    return path


def test_a_name_begins_with_the_kind_of_gpu(tmp_path: Path) -> None:
    assert keep(tmp_path, "a").name.startswith("NVIDIA-H100-80GB-HBM3-9-0-")


def test_each_kind_of_gpu_and_each_version_has_its_timings() -> None:
    def name(version: tuple[int, ...] = (10, 14, 1, 48), gpu: str = "NVIDIA L4", compute: str = "8.9") -> str:
        return timings_name(version=version, gpu=gpu, compute_capability=compute)

    assert name() == "NVIDIA-L4-8-9-10.14.1.48.timing"
    assert len({name(), name(version=(10, 15, 0, 1)), name(gpu="NVIDIA L40"), name(compute="9.0")}) == 4


def test_those_that_were_not_used_for_the_longest_time_are_removed(tmp_path: Path) -> None:
    old = [keep(tmp_path, f"old {number}", used=number) for number in range(KEPT_PLANS + 2)]
    new = keep(tmp_path, "new", used=100)
    remove_unused(new)
    assert new.exists()
    assert [path.exists() for path in old] == [False] * 3 + [True] * (KEPT_PLANS - 1)


def test_the_one_that_is_new_stays_whatever_the_clocks_of_others_say(tmp_path: Path) -> None:
    ahead = [keep(tmp_path, f"ahead {number}", used=1000 + number) for number in range(KEPT_PLANS)]
    new = keep(tmp_path, "new", used=1)
    remove_unused(new)
    assert new.exists()
    assert sum(path.exists() for path in ahead) == KEPT_PLANS - 1


def test_one_that_is_used_stays(tmp_path: Path) -> None:
    old = [keep(tmp_path, f"old {number}", used=number) for number in range(KEPT_PLANS)]
    mark_used(old[0])
    remove_unused(keep(tmp_path, "new", used=100))
    assert [path.exists() for path in old] == [True, False] + [True] * (KEPT_PLANS - 2)


def test_other_kinds_of_gpus_and_other_files_are_left_alone(tmp_path: Path) -> None:
    others = [keep(tmp_path, f"other {number}", gpu="NVIDIA L4", used=1) for number in range(KEPT_PLANS + 1)]
    timings = tmp_path / timings_name(version=(10, 14, 1, 48), gpu="NVIDIA H100 80GB HBM3", compute_capability="9.0")
    timings.touch()
    for number in range(KEPT_PLANS + 1):
        remove_unused(keep(tmp_path, f"new {number}", used=100 + number))
    assert all(path.exists() for path in (*others, timings))


def test_what_killed_builds_have_left_is_removed_once_nobody_writes_it(tmp_path: Path) -> None:
    left, written = tmp_path / ".a.plan-1.part", tmp_path / ".a.plan-2.part"
    for path, used in ((left, DAY), (written, 3 * DAY - 60)):
        path.touch()
        os.utime(path, (used, used))
    remove_unused(keep(tmp_path, "new", used=3 * DAY))
    assert not left.exists()
    assert written.exists()


def test_one_that_another_server_removes_meanwhile_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(KEPT_PLANS + 1):
        keep(tmp_path, f"old {number}", used=number)
    new = keep(tmp_path, "new", used=100)
    listed = Path.glob

    def raced(folder: Path, pattern: str) -> list[Path]:
        found = list(listed(folder, pattern))
        for path in found:
            if path != new:
                path.unlink()
        return found

    monkeypatch.setattr(Path, "glob", raced)
    remove_unused(new)
    assert list(tmp_path.iterdir()) == [new]


def test_where_nothing_can_be_written_down_a_plan_is_used_all_the_same(tmp_path: Path) -> None:
    mark_used(tmp_path / "gone.plan")
