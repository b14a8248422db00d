"""Who is there is known, and who stands still is ended."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runners.bento import presence
from runners.bento.presence import Attendance, attend
from tests.serving import ROOT, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT_S = 30.0
BEAT_SECONDS = 0.2
FD_SETSIZE = 1024
SILENT = """
import socket, sys, time
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    time.sleep(600)
"""
COMPUTING = f"""
import asyncio, pathlib, sys, time
from runners.bento import presence
presence._BEAT_SECONDS = {BEAT_SECONDS}
async def compute():
    present = asyncio.create_task(presence.attend(pathlib.Path(sys.argv[1])))
    await asyncio.sleep(0.01)
    time.sleep(600)
asyncio.run(compute())
"""


LOCKED = f"""
import asyncio, pathlib, re, sys
from runners.bento import presence
presence._BEAT_SECONDS = {BEAT_SECONDS}
async def compute():
    present = asyncio.create_task(presence.attend(pathlib.Path(sys.argv[1])))
    await asyncio.sleep(0.01)
    re.match("(a+)+$", "a" * 100 + "b")
asyncio.run(compute())
"""


@pytest.fixture
def attendance(tmp_path: Path) -> Iterator[Attendance]:
    attendance = Attendance(tmp_path / "presence")
    yield attendance
    attendance.close()
    assert not (tmp_path / "presence").exists()


def test_it_is_empty_when_all_have_let_go(tmp_path: Path, attendance: Attendance) -> None:
    async def come_and_go() -> None:
        await asyncio.wait_for(attendance.until_empty(), WAIT_S)
        workers = [asyncio.create_task(attend(tmp_path / "presence")) for _ in range(3)]
        while attendance.present < len(workers):
            await asyncio.sleep(0.001)
        empty = asyncio.create_task(attendance.until_empty())
        for worker in workers:
            await asyncio.sleep(0)
            assert not empty.done()
            worker.cancel()
        await asyncio.wait_for(empty, WAIT_S)

    asyncio.run(come_and_go())


def test_one_that_says_nothing_is_killed_and_one_that_computes_is_not(
    tmp_path: Path, attendance: Attendance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "_BEAT_SECONDS", BEAT_SECONDS)
    with ExitStack() as stack:
        computing = stack.enter_context(running(COMPUTING, tmp_path / "presence"))
        eventually(lambda: attendance.present == 1, "one computes")
        silent = stack.enter_context(running(SILENT, tmp_path / "presence"))
        assert silent.wait(WAIT_S) == -signal.SIGKILL
        eventually(lambda: attendance.present == 1, "the silent one is no longer there")
        assert computing.poll() is None


def test_one_that_lets_no_other_thread_run_is_killed_only_when_it_stops(
    tmp_path: Path, attendance: Attendance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "_BEAT_SECONDS", BEAT_SECONDS)
    with running(LOCKED, tmp_path / "presence") as locked:
        eventually(lambda: attendance.present == 1, "it computes")
        with pytest.raises(subprocess.TimeoutExpired):
            locked.wait(2 * presence._MOST_SILENT_BEATS * BEAT_SECONDS)
        locked.send_signal(signal.SIGSTOP)
        assert locked.wait(WAIT_S) == -signal.SIGKILL


def test_it_does_not_matter_how_many_descriptors_are_open(tmp_path: Path, attendance: Attendance) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))

    async def come_and_go() -> None:
        worker = asyncio.create_task(attend(tmp_path / "presence"))
        while not attendance.present:
            await asyncio.sleep(0.001)
        worker.cancel()
        await asyncio.wait_for(attendance.until_empty(), WAIT_S)

    try:
        with ExitStack() as stack:
            while stack.enter_context(Path(os.devnull).open()).fileno() < FD_SETSIZE:
                pass
            asyncio.run(come_and_go())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def running(program: str, path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", program, str(path)], cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def test_workers_are_let_in_again_when_a_descriptor_is_free_again(tmp_path: Path, attendance: Attendance) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket(socket.AF_UNIX) as connection:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            connection.connect(str(tmp_path / "presence"))
            # for the other thread, to be refused
            time.sleep(0.1)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        eventually(lambda: attendance.present == 1, "the worker is there", WAIT_S)
