"""How many threads a model may use: a budget, instances × intra-op threads ≤ usable cores"""

import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["SHORT_RUN_SECONDS", "cores_within", "intra_op_threads", "quota_cores", "usable_cores"]

SHORT_RUN_SECONDS = 0.001


def intra_op_threads(asked: int, measured_seconds: float | None, instances: int, cores: int) -> int:
    """
    What the configuration asks for; else one for a short model, where waking a second thread costs more than it
    saves; else the instance's share of the cores. A model that could not be measured counts as long.
    """
    if asked > 0:
        return asked
    if measured_seconds is not None and measured_seconds < SHORT_RUN_SECONDS:
        return 1
    return max(1, cores // max(1, instances))


def cores_within(affinity: int, quotas: Iterable[float]) -> int:
    """Whole cores that `affinity` and all `quotas` leave, at least one"""
    return max(1, int(min([affinity, *quotas])))


def quota_cores(quota: str, period: str) -> float | None:
    """The cores that one cgroup allows: "max" (v2) and "-1" (v1) are no bound"""
    try:
        allowed, per = int(quota), int(period)
    except ValueError:
        return None
    return allowed / per if allowed > 0 and per > 0 else None


def usable_cores(proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int:
    """The cores of this process: its affinity mask, and the quota of its cgroup and of all those above it"""
    return cores_within(len(os.sched_getaffinity(0)), _quotas(proc, root))


def _quotas(proc: Path, root: Path) -> Iterable[float]:
    for line in _read(proc).splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _quotas_above(root, path, "cpu.max")
        elif "cpu" in controllers.split(","):
            for mount in {root / controllers, root / "cpu"}:
                yield from _quotas_above(mount, path, "cpu.cfs_quota_us", "cpu.cfs_period_us")


def _quotas_above(mount: Path, path: str, *files: str) -> Iterable[float]:
    group = Path(path.lstrip("/"))
    for directory in (mount / group, *(mount / parent for parent in group.parents)):
        words = " ".join(_read(directory / file) for file in files).split()
        cores = quota_cores(*words) if len(words) == 2 else None
        if cores is not None:
            yield cores


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
