"""What tells a server to end."""

from __future__ import annotations

import subprocess
import sys

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
