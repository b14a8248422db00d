"""Each test has one fault, most of them the first time that they run. The variable PLANTED names a folder for that."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.serving import STARTED, Server
from tests.waiting import Late, eventually

TIERS = pytest.mark.parametrize(
    "tier",
    [
        "plain",
        pytest.param("clock", marks=pytest.mark.clock),
        pytest.param("alone", marks=pytest.mark.alone),
        pytest.param("scheduled", marks=pytest.mark.scheduled),
    ],
)


def is_again() -> bool:
    path = Path(os.environ["PLANTED"], sys._getframe(1).f_code.co_name)
    again = path.exists()
    path.touch()
    return again


@TIERS
def test_late_once(tier: str) -> None:
    if not is_again():
        eventually(lambda: False, "the moon rises", timeout=0.0)


@TIERS
def test_late_and_wrong(tier: str, request: pytest.FixtureRequest) -> None:
    def fault() -> None:
        raise ValueError("and wrong")

    if not is_again():
        request.addfinalizer(fault)
        raise Late("late")


@TIERS
def test_late_beside_a_server_that_died(tier: str) -> None:
    if not is_again():
        server = Server.__new__(Server)
        server.process = subprocess.Popen(["false"], text=True)
        server.process.wait()
        server._is_told = False
        STARTED.add(server)
        raise Late("late")


@TIERS
def test_late_always(tier: str) -> None:
    eventually(lambda: False, "the moon rises", timeout=0.0)


@TIERS
def test_late_always_too(tier: str) -> None:
    eventually(lambda: False, "the sun rises", timeout=0.0)


@TIERS
def test_late_once_more(tier: str) -> None:
    eventually(lambda: False, "a star rises", timeout=0.0)


@TIERS
def test_wrong_once(tier: str) -> None:
    assert is_again()


@TIERS
def test_timed_out_once(tier: str) -> None:
    if not is_again():
        raise TimeoutError("of somebody else")


@TIERS
@pytest.mark.timeout(1)
def test_hangs_once(tier: str) -> None:
    if not is_again():
        threading.Event().wait()


@TIERS
def test_crashes_once(tier: str) -> None:
    if not is_again():
        os.kill(os.getpid(), signal.SIGSEGV)


@TIERS
def test_ends_its_process_once(tier: str) -> None:
    if not is_again():
        os._exit(0)


def test_sleeps() -> None:
    time.sleep(0.001)


def test_sleeps_in_a_thread() -> None:
    thread = threading.Thread(target=lambda: time.sleep(0.001))
    thread.start()
    thread.join()


@pytest.mark.clock
def test_limits_itself() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))


@pytest.mark.clock
def test_pins_itself() -> None:
    os.sched_setaffinity(0, os.sched_getaffinity(0))


def test_loads_a_library() -> None:
    ctypes.CDLL("libm.so.6")


def test_reads_memory() -> None:
    assert "VmRSS" in Path("/proc/self/status").read_text()


def test_counts_descriptors() -> None:
    assert list(Path("/proc/self/fd").iterdir())


@pytest.mark.alone
def test_may_do_all_of_it() -> None:
    time.sleep(0.001)
    resource.setrlimit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))
    os.sched_setaffinity(0, os.sched_getaffinity(0))
    ctypes.CDLL("libm.so.6")
    assert "VmRSS" in Path("/proc/self/status").read_text()
