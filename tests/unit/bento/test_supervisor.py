"""BentoML's supervisor replaces dead workers soon, those that die again and again slowly, and always hears SIGTERM."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runners.bento.supervisor import VainStarts
from tests.serving import ROOT
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WAIT_S = 30.0
TWO_LOOKS_OF_BENTOML_S = 20.0
DIES_AT_ONCE = "import pathlib, sys; pathlib.Path(sys.argv[1]).open('a').write('x')"
LIVES = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(600)"
SUPERVISOR = """
import sys
from runners.bento import supervisor
from tests.bentoml_internals import create_standalone_arbiter, create_watcher

supervisor.replace_workers_soon()
program, path, busy = sys.argv[1:]
watcher = create_watcher(name="worker", args=["-c", program, path], numprocesses=1)
arbiter = create_standalone_arbiter([watcher])
looks = arbiter._starts.are_too_many
def look(now):
    found = looks(now)
    print("held back" if found else "looked", flush=True)
    return found
arbiter._starts.are_too_many = look
stop = arbiter.stop
def asked():
    print("asked to stop", flush=True)
    return stop()
arbiter.stop = asked
def idle(descriptor, _):
    arbiter.loop.remove_handler(descriptor)
    arbiter._exclusive_running_command = None
def started(_):
    if busy == "busy":
        arbiter._exclusive_running_command = "manage_watchers"
        # until its input ends
        arbiter.loop.add_handler(0, idle, arbiter.loop.READ)
        print("busy", flush=True)
arbiter.start(cb=started)
"""


@contextmanager
def supervisor(program: str, path: Path, busy: str = "idle") -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", SUPERVISOR, program, str(path), busy]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def pid_in(path: Path) -> int:
    return int(path.read_text() or 0) if path.exists() else 0


def test_a_dead_worker_is_replaced_soon(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    with supervisor(LIVES, path) as process:
        try:
            eventually(lambda: pid_in(path) > 0, "the worker is there", WAIT_S)
            began = time.monotonic()
            known = {0}
            for _ in range(3):
                known.add(pid_in(path))
                os.kill(pid_in(path), signal.SIGKILL)
                eventually(lambda: pid_in(path) not in known, "another one is there", WAIT_S)
            assert time.monotonic() - began < TWO_LOOKS_OF_BENTOML_S
        finally:
            process.terminate()
            process.wait(WAIT_S)


def test_one_that_dies_again_and_again_does_not_keep_the_machine_busy(tmp_path: Path) -> None:
    with supervisor(DIES_AT_ONCE, tmp_path / "starts") as process:
        assert process.stdout is not None
        held_back = 0
        for line in process.stdout:
            held_back += re.fullmatch("held back\n", line) is not None
            if held_back == 8:
                break
        # the first one may have gone before anybody looked
        assert len((tmp_path / "starts").read_text()) in {4, 5}


def test_workers_that_are_killed_while_they_serve_are_replaced_however_many() -> None:
    vain = VainStarts(3)
    for second in range(100):
        vain.died(60.0, second / 10)
        assert not vain.are_too_many(second / 10)


def test_those_that_die_of_their_start_hold_the_others_back_for_a_moment() -> None:
    vain = VainStarts(3)
    for _ in range(11):
        vain.died(0.1, 100.0)
        assert not vain.are_too_many(100.0)
    vain.died(0.1, 100.0)
    assert vain.are_too_many(100.0)
    assert not vain.are_too_many(102.0)
    # and then one by one
    vain.died(0.1, 102.0)
    assert vain.are_too_many(102.0)


def test_a_signal_that_comes_while_it_is_busy_ends_it_all_the_same(tmp_path: Path) -> None:
    with supervisor(LIVES, tmp_path / "pid", "busy") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert any(line == "busy\n" for line in process.stdout)
        eventually(lambda: pid_in(tmp_path / "pid") > 0, "its worker has started")
        process.terminate()
        assert any(line == "asked to stop\n" for line in process.stdout)
        process.stdin.close()
        process.stdout.read()
        assert process.wait(WAIT_S) == 0
