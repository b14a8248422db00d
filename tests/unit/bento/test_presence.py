"""Who is there is known, and who stands still is ended."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runners.bento import presence
from runners.bento.activity import Activity, _fields_of, _is_at_work, threads_of
from runners.bento.lifeline import Lifeline, hold_lifeline
from runners.bento.place import Place
from runners.bento.presence import Attendance, attend
from tests.forks import forked
from tests.serving import ROOT
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.clock

WAIT_S = 30.0
BEAT_SECONDS = 0.1
FD_SETSIZE = 1024
PATIENCE = 600
SILENT = """
import socket, sys, time
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    time.sleep(600)
"""
COMPUTING = f"""
import asyncio, pathlib, sys, time
from runners.bento import presence
from tests.unit.bento.test_presence import PATIENCE, place_in
presence._BEAT_SECONDS = {BEAT_SECONDS}
async def compute():
    present = asyncio.create_task(presence.attend(place_in(pathlib.Path(sys.argv[1]).parent), PATIENCE))
    await asyncio.sleep(0.01)
    time.sleep(600)
asyncio.run(compute())
"""
ENDING_THREAD = """
import os, signal, threading
over = threading.Event()
def work():
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    while not over.is_set():
        pass
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
threading.Thread(target=work).start()
signal.sigwait({signal.SIGUSR1})
over.set()
while True:
    pass
"""
LOCKED = f"""
import asyncio, pathlib, re, sys, threading, time, types
from runners.bento import presence
from tests.forks import forked
from tests.unit.bento.test_presence import PATIENCE, place_in
presence._BEAT_SECONDS = {BEAT_SECONDS}
has_said_its_patience = threading.Event()
def now():
    has_said_its_patience.set()
    return time.monotonic()
presence.time = types.SimpleNamespace(monotonic=now)
async def compute():
    present = asyncio.create_task(presence.attend(place_in(pathlib.Path(sys.argv[1]).parent), PATIENCE))
    while not has_said_its_patience.is_set():
        await asyncio.sleep(0.001)
    re.match("(a+)+$", "a" * 100 + "b")
asyncio.run(compute())
"""


def place_in(folder: Path) -> Place:
    return Place(*(folder / name for name in ("local", "http", "grpc", "presence", "lifeline")))


@pytest.fixture
def lifeline(tmp_path: Path) -> Iterator[Lifeline]:
    lifeline = Lifeline(tmp_path / "lifeline")
    yield lifeline
    lifeline.close()


@pytest.fixture
def attendance(tmp_path: Path, lifeline: Lifeline) -> Iterator[Attendance]:
    attendance = Attendance(tmp_path / "presence")
    yield attendance
    attendance.close()
    assert not (tmp_path / "presence").exists()


def test_it_is_empty_when_all_have_let_go(tmp_path: Path, attendance: Attendance) -> None:
    async def come_and_go() -> None:
        await asyncio.wait_for(attendance.until_empty(), WAIT_S)
        workers = [asyncio.create_task(attend(place_in(tmp_path), PATIENCE)) for _ in range(3)]
        while attendance.present < len(workers):
            await asyncio.sleep(0.001)
        empty = asyncio.create_task(attendance.until_empty())
        for worker in workers:
            await asyncio.sleep(0)
            assert not empty.done()
            worker.cancel()
        await asyncio.wait_for(empty, WAIT_S)

    asyncio.run(come_and_go())


def test_a_worker_that_was_there_first_is_counted_when_somebody_counts(
    tmp_path: Path, lifeline: Lifeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "_AGAIN_SECONDS", 0.01)

    async def main() -> None:
        worker = asyncio.create_task(attend(place_in(tmp_path), PATIENCE))
        # it has asked once, and found nobody
        await asyncio.sleep(0)
        attendance = Attendance(tmp_path / "presence")
        while not attendance.present:
            await asyncio.sleep(0.001)
        worker.cancel()
        await asyncio.wait_for(attendance.until_empty(), WAIT_S)
        attendance.close()

    asyncio.run(main())


def test_one_that_says_nothing_is_killed_and_one_that_computes_is_not(
    tmp_path: Path, attendance: Attendance, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(presence, "_BEAT_SECONDS", BEAT_SECONDS)
    with ExitStack() as stack:
        computing = stack.enter_context(running(COMPUTING, tmp_path / "presence"))
        eventually(lambda: attendance.present == 1, "one computes")
        silent = stack.enter_context(running(SILENT, tmp_path / "presence"))
        assert silent.wait(WAIT_S) == -signal.SIGKILL
        eventually(lambda: attendance.present == 1, "the silent one is no longer there")
        assert computing.poll() is None
    (said,) = (record.getMessage() for record in caplog.records if "Its threads" in record.message)
    assert re.search(r"Its threads: python\S* S\b", said), said


def test_one_that_lets_no_other_thread_run_is_killed_only_when_it_stops(
    tmp_path: Path, attendance: Attendance, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[bool] = []

    class Seen(Activity):
        def goes_on(self) -> bool:
            looks.append(super().goes_on())
            return looks[-1]

    monkeypatch.setattr(presence, "_BEAT_SECONDS", BEAT_SECONDS)
    monkeypatch.setattr(presence, "Activity", Seen)
    with running(LOCKED, tmp_path / "presence") as locked:
        eventually(lambda: len(looks) >= 2, "it was silent long enough to be looked at twice")
        assert (all(looks), locked.poll()) == (True, None)
        locked.send_signal(signal.SIGSTOP)
        assert locked.wait(WAIT_S) == -signal.SIGKILL


@pytest.mark.alone
def test_it_does_not_matter_how_many_descriptors_are_open(tmp_path: Path, lifeline: Lifeline) -> None:
    async def come_and_go(attendance: Attendance) -> None:
        worker = asyncio.create_task(attend(place_in(tmp_path), PATIENCE))
        while not attendance.present:
            await asyncio.sleep(0.001)
        worker.cancel()
        await asyncio.wait_for(attendance.until_empty(), WAIT_S)

    def child() -> str:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
        attendance = Attendance(tmp_path / "presence")
        with ExitStack() as stack:
            while stack.enter_context(Path(os.devnull).open()).fileno() < FD_SETSIZE:
                pass
            asyncio.run(come_and_go(attendance))
        attendance.close()
        return "has come and gone"

    assert forked(child) == "has come and gone"


def test_one_that_lets_no_other_thread_run_is_killed_when_its_patience_is_over(
    tmp_path: Path, attendance: Attendance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "_BEAT_SECONDS", BEAT_SECONDS)
    with running(LOCKED.replace("PATIENCE)", "1)"), tmp_path / "presence") as locked:
        assert locked.wait(WAIT_S) == -signal.SIGKILL


def test_one_that_reads_nothing_for_long_is_killed_all_the_same_when_its_patience_is_over(
    tmp_path: Path, lifeline: Lifeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "_BEAT_SECONDS", BEAT_SECONDS)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "presence"))
        listener.listen()
        with running(LOCKED.replace("PATIENCE)", "2)"), tmp_path / "presence") as locked:
            connection, _ = listener.accept()
            # It takes a few unread beats, and none of the others that two seconds have.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
            presence._stay(connection, "a worker", PATIENCE)
            assert locked.wait(WAIT_S) == -signal.SIGKILL


def test_one_that_lets_no_other_thread_run_does_not_keep_a_service_from_its_end(
    tmp_path: Path, attendance: Attendance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "_BEAT_SECONDS", BEAT_SECONDS)
    monkeypatch.setattr(presence, "LEAST_SECONDS", 1)
    with running(LOCKED, tmp_path / "presence") as locked:
        eventually(lambda: attendance.present == 1, "it computes")
        asyncio.run(asyncio.wait_for(attendance.until_empty(), WAIT_S))
        assert locked.wait(WAIT_S) == -signal.SIGKILL


@pytest.mark.alone
def test_one_that_gets_no_processor_is_active_and_one_that_is_stopped_is_not() -> None:
    core = {min(os.sched_getaffinity(0))}
    with ExitStack() as stack:
        busy, starved = (stack.enter_context(running("while True: pass", Path())) for _ in range(2))
        for process in (busy, starved):
            os.sched_setaffinity(process.pid, core)
        os.sched_setscheduler(starved.pid, os.SCHED_IDLE, os.sched_param(0))
        thread = Path(f"/proc/{starved.pid}/task/{starved.pid}")
        eventually(lambda: _seconds_waited(thread) > 0.3, "it has waited for a processor")
        activity = Activity(starved.pid)
        eventually(activity.goes_on, "it is active")
        starved.send_signal(signal.SIGSTOP)
        eventually(lambda: _fields_of(Path(f"/proc/{starved.pid}"))[0] == b"T", "it is stopped")
        activity = Activity(starved.pid)
        time.sleep(0.3)
        assert not activity.goes_on()


def test_one_is_at_work_that_runs_at_this_moment_and_one_that_is_stopped_is_not() -> None:
    with ExitStack() as stack:
        busy, idle = (
            stack.enter_context(running(code, Path())) for code in ("while True: pass", "import time; time.sleep(600)")
        )
        eventually(lambda: _is_at_work(busy.pid), "it runs, or is to run")
        eventually(lambda: not _is_at_work(idle.pid), "it waits")
        busy.send_signal(signal.SIGSTOP)
        eventually(lambda: threads_of(busy.pid).split()[1] == "T", "it is stopped")
        assert not _is_at_work(busy.pid)
    assert threads_of(busy.pid) == ""


@pytest.mark.alone
def test_one_goes_on_whose_thread_has_waited_for_a_processor_and_ended() -> None:
    core = {min(os.sched_getaffinity(0))}
    with ExitStack() as stack:
        busy = stack.enter_context(running("while True: pass", Path()))
        working = stack.enter_context(running(ENDING_THREAD, Path()))
        for process in (busy, working):
            os.sched_setaffinity(process.pid, core)
        tasks = Path(f"/proc/{working.pid}/task")
        eventually(lambda: len(list(tasks.iterdir())) == 2, "its thread is there")
        (thread,) = (path for path in tasks.iterdir() if path.name != str(working.pid))
        os.sched_setaffinity(int(thread.name), core)
        eventually(lambda: _seconds_waited(thread) > 1, "it has waited for a processor")
        activity = Activity(working.pid)
        busy.kill()
        working.send_signal(signal.SIGUSR1)
        eventually(lambda: not thread.exists(), "the thread has ended")
        time.sleep(0.3)
        assert activity.goes_on()


def test_one_for_whom_there_is_no_thread_comes_again_and_is_not_waited_for(
    tmp_path: Path, attendance: Attendance, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start
    failed: list[threading.Thread] = []

    def fail_at_first(thread: threading.Thread) -> None:
        if thread.name == "kushi-presence" and len(failed) < 3:
            failed.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    async def come_and_go() -> None:
        worker = asyncio.create_task(attend(place_in(tmp_path), PATIENCE))
        while len(failed) < 3 or not attendance.present:
            await asyncio.sleep(0.001)
        worker.cancel()
        await asyncio.wait_for(attendance.until_empty(), WAIT_S)

    monkeypatch.setattr(threading.Thread, "start", fail_at_first)
    asyncio.run(asyncio.wait_for(come_and_go(), WAIT_S))


def test_an_engine_lives_as_long_as_a_worker_that_may_ask_it(
    tmp_path: Path, attendance: Attendance, lifeline: Lifeline
) -> None:
    async def come_and_go() -> None:
        reader = os.open(tmp_path / "lifeline", os.O_RDONLY | os.O_NONBLOCK)
        worker = asyncio.create_task(attend(place_in(tmp_path), PATIENCE))
        while not attendance.present:
            await asyncio.sleep(0.001)
        # as when its keeper dies
        os.close(lifeline._writer)
        with pytest.raises(BlockingIOError):
            os.read(reader, 1)
        worker.cancel()
        await asyncio.wait([worker])
        assert os.read(reader, 1) == b""
        os.close(reader)
        lifeline._writer = hold_lifeline(tmp_path / "lifeline")

    asyncio.run(come_and_go())


def _seconds_waited(thread: Path) -> float:
    return int((thread / "schedstat").read_bytes().split()[1]) / 1e9


@contextmanager
def running(program: str, path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", program, str(path)], cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.alone
def test_workers_are_let_in_again_when_a_descriptor_is_free_again(tmp_path: Path, lifeline: Lifeline) -> None:
    def child() -> str:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        attendance = Attendance(tmp_path / "presence")
        with socket.socket(socket.AF_UNIX) as connection:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            connection.connect(str(tmp_path / "presence"))
            # for the other thread, to be refused
            time.sleep(0.1)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            eventually(lambda: attendance.present == 1, "the worker is there", WAIT_S)
        attendance.close()
        return "it was let in"

    assert forked(child) == "it was let in"
