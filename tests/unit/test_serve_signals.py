"""What tells a server to end."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.serving import ROOT

ANOTHER_THREAD = """
import signal, threading, time
from runners.serve import _Signals

signals = _Signals()
signals.drain_from_now_on()

def strike():
    time.sleep(0.3)  # until the main thread waits
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

threading.Thread(target=strike, daemon=True).start()
signals.wait()
print("drains")
"""


def test_a_signal_that_another_thread_gets_ends_the_wait() -> None:
    command = [sys.executable, "-c", ANOTHER_THREAD]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stdout) == (0, "drains\n"), done.stderr


HANG_UP = """
import os, signal, sys
from runners.serve import _Signals

if sys.argv[1] == "ignored":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
signals = _Signals()
signals.drain_from_now_on()
os.kill(os.getpid(), signal.SIGHUP)
print("alive")
if sys.argv[1] == "ignored":
    os.kill(os.getpid(), signal.SIGTERM)
signals.wait()
print("drains")
"""


@pytest.mark.parametrize("before", ["default", "ignored"])
def test_a_hang_up_drains_unless_it_was_ignored_before(before: str) -> None:
    command = [sys.executable, "-c", HANG_UP, before]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stdout) == (0, "alive\ndrains\n"), done.stderr
