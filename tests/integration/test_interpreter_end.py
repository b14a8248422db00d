"""What becomes of threads that are in the native module when Python ends.

Before Python 3.14 a thread that asks for the GIL then is unwound, which ends the process with a signal. How the threads
stand when Python ends is left to chance, so each script runs a few times.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]

RUN: Final = """
import threading, numpy as np
from tests.python_models import Plain, served
inside = threading.Event()
def work(a, b):
    inside.set()
    return [a + b, a - b]
context = served(Plain(work))
model = context.__enter__()
def ask():
    while True:
        model.ask_two_rows()
for _ in range(4):
    threading.Thread(target=ask, daemon=True).start()
inside.wait(30)
print("leaving")
"""


READ: Final = """
import contextlib, sys, threading, time, numpy as np
from kushi_native import RemoteClient
from tests.python_models import Plain, served
sys.setswitchinterval(1e-5)
context = served(Plain(lambda a, b: [a + b, a - b]))
model = context.__enter__()
one = np.ones((2, 2), np.float32)
arguments = "m", (one, one), "", None, None, None, 0, ""
answer = model.core.infer(*arguments)
def read():
    while True:
        answer.tensor("SUM").numpy()
def look():
    while True:
        list(answer.values()), answer.parameters, answer.get_response(), np.from_dlpack(answer.tensor("SUM"))
def call():
    while True:
        model.core.call("server_live", b"{}"), model.core.index()
def stream():
    while True:
        with contextlib.suppress(Exception):
            list(model.core.stream(*arguments))
def fail():
    while True:
        with contextlib.suppress(Exception):
            RemoteClient("nonsense")
for work in [read] * 8 + [look, call, stream, fail]:
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
print("leaving" if threading.active_count() == 13 else "a thread has ended")
"""

JOIN: Final = """
import atexit, threading
# behind what the native module has registered
@atexit.register
def leave():
    over.set()
    thread.join(30)
    print("a thread has not ended" if thread.is_alive() else "leaving")
over = threading.Event()
import numpy as np
from tests.python_models import Plain, served
context = served(Plain(lambda a, b: [a + b, a - b]))
model = context.__enter__()
one = np.ones((2, 2), np.float32)
answer = model.core.infer("m", (one, one), "", None, None, None, 0, "")
orders = model.core.orders()
def read():
    while not over.is_set():
        answer.tensor("SUM").numpy(), answer.get_response(), list(answer.items()), orders.next()
thread = threading.Thread(target=read, daemon=True)
thread.start()
"""


@pytest.mark.parametrize("script", [RUN, READ, JOIN], ids=["engines_run", "answers_are_read", "joined"])
def test_a_process_that_ends_while_threads_are_in_rust_ends(script: str) -> None:
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stdout) == (0, "leaving\n"), done.stderr
