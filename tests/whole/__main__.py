"""
`python3 -m tests.whole [PART…]`: runs all parts, or those that are named, and shows one table at the end.

It fails late: a part that fails stops none but those that need it. `build/ci` keeps the log of each part, the results
of its tests (JUnit), the order in which each process ran them, what was asked again, and `last.json`: the tree, the
verdict and how long it took.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .parts import PARTS, ROOT
from .reading import Found, last_lines, read_junit, read_log
from .running import Outcome, Ran, adopt, end_all, run
from .table import lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .parts import Part

FOLDER = ROOT / "build" / "ci"
RED = "red"


def main(names: Sequence[str]) -> int:
    wanted = [part for part in PARTS if not names or part.name in names]
    if unknown := set(names) - {part.name for part in PARTS}:
        sys.stderr.write(f"no part {', '.join(sorted(unknown))}: there are {', '.join(part.name for part in PARTS)}\n")
        return 2
    os.chdir(ROOT)
    shutil.rmtree(FOLDER, ignore_errors=True)
    for folder in ("logs", "junit"):
        (FOLDER / folder).mkdir(parents=True)
    began = time.monotonic()
    ran: list[Ran] = []
    for part in wanted:
        ran.append(_run(part, ran))
        # after each one: a run that is cut off leaves what is known
        _write(ran, began, {}, [], ended=False)
    found = {part.name: _found(part.name) for part in ran}
    for part in wanted:
        found[part.name].failures.update(_missing(part, found[part.name], ran))
    failed = [part for part in ran if part.outcome != Outcome.PASSED]
    unexplained = {
        part.name: last_lines(_log(part.name).read_text(encoding="utf-8", errors="replace"))
        for part in failed
        if part.outcome == Outcome.FAILED and not found[part.name].failures
    }
    looks = _second_looks(found)
    _write(ran, began, found, looks, ended=True)
    for line in lines(ran, found, unexplained, looks, _notes()):
        sys.stdout.write(f"{line}\n")
    verdict = _verdict(ran, found)
    sys.stdout.write(f"{verdict} in {time.monotonic() - began:.0f} s: {FOLDER.relative_to(ROOT)}/last.json\n")
    return 1 if verdict == RED else 0


def _verdict(ran: Sequence[Ran], found: dict[str, Found]) -> str:
    """Of what parts answer, and of what their tests have left behind"""
    if any(part.outcome != Outcome.PASSED for part in ran) or any(one.failures for one in found.values()):
        return RED
    return "green" if len(ran) == len(PARTS) else "green, of some parts"


def _run(part: Part, before: Sequence[Ran]) -> Ran:
    missing = [one.name for one in before if one.name in part.needs and one.outcome != Outcome.PASSED]
    if missing:
        return Ran(part.name, Outcome.LEFT_OUT)
    sys.stdout.write(f"\n=== {part.name}\n")
    sys.stdout.flush()
    kept = {
        "PART": part.name,
        "RECORD": str(FOLDER),
        "SECOND_LOOKS": str(FOLDER / "second_looks"),
        "TIMES": str(FOLDER / "times"),
    }
    return run(part, _log(part.name), kept)


def _log(part: str) -> Path:
    return FOLDER / "logs" / f"{part}.txt"


def _found(part: str) -> Found:
    """Of all that ran as this part, or as a part of it"""
    found = Found()
    for path in sorted((FOLDER / "junit").glob("*.xml")):
        if path.stem == part or path.stem.startswith(f"{part}."):
            found.add(read_junit(path))
    if _log(part).exists():
        found.add(read_log(_log(part).read_text(encoding="utf-8", errors="replace")))
    return found


def _missing(part: Part, found: Found, ran: Sequence[Ran]) -> dict[str, str]:
    """What a part that passed should have left behind"""
    if not part.results or not any(one.name == part.name and one.outcome == Outcome.PASSED for one in ran):
        return {}
    files = [f"{name}.xml" for name in part.results]
    gone = {name: "it is not there: no test has run" for name in files if not (FOLDER / "junit" / name).exists()}
    return gone or ({} if found.passed + found.skipped else {part.name: "no test has run"})


def _second_looks(found: dict[str, Found]) -> list[dict[str, Any]]:
    """All of the run; a test that was right then is no failure"""
    path = FOLDER / "second_looks"
    looks = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    for look in looks:
        for one in found.values():
            if look["right"] and one.failures.pop(look["test"], None) is not None:
                one.passed += 1
    return looks


def _notes() -> list[str]:
    path = FOLDER / "times"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _write(ran: Sequence[Ran], began: float, found: dict[str, Found], looks: Sequence[Any], *, ended: bool) -> None:
    content = {
        "tree": (tree := _git("rev-parse", "HEAD^{tree}")),
        "seed": int(tree[:8] or "0", 16),
        "changed": _git("status", "--porcelain") != "",
        "verdict": _verdict(ran, found) if ended else "not ended",
        "seconds": round(time.monotonic() - began, 1),
        "parts": [asdict(part) for part in ran],
        "failures": {name: one.failures for name, one in found.items() if one.failures},
        "second_looks": looks,
        "passed": sum(one.passed for one in found.values()),
        "machine": {
            "cores": len(os.sched_getaffinity(0)),
            "processor": _processor(),
            "python": platform.python_version(),
        },
    }
    (FOLDER / "last.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _processor() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123 - not a path of ours
        return next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")


if __name__ == "__main__":
    adopt()
    # a run that is told to end ends what it has begun
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main(sys.argv[1:]))
    finally:
        # also where the signal came while one was beginning
        end_all()
