"""An engine in this process among threads, forks, signals and exits."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runners import Engine, KushiError, ShuttingDown
from tests import models
from tests.arrays import LARGE, ones, sample
from tests.gates import HELD, Gate
from tests.serving import eventually, labelled, metrics

ROOT = Path(__file__).parents[2]
THREADS = 64
LONG = np.array([[20_000]])


def run(script: str, *arguments: object, code: int = 0) -> str:
    """The output of a program of its own, which must end with that code"""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", script, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


# --- threads ---


def test_many_threads_call_at_once_and_each_gets_its_own_answer(engine: Engine) -> None:
    start = threading.Barrier(THREADS)

    def call(number: int) -> list[int]:
        start.wait()
        return [int(engine.infer("add_sub", ones() * number, ones() * n)["OUTPUT1"][0, 0]) for n in range(20)]

    with ThreadPoolExecutor(THREADS) as threads:
        assert list(threads.map(call, range(THREADS))) == [[number - n for n in range(20)] for number in range(THREADS)]


def test_threads_with_large_arrays_get_their_own_back(engine: Engine) -> None:
    def call(number: int) -> bool:
        sent = sample(np.float32, LARGE) + number
        outputs = [engine.infer("identity_fp32", sent)["OUTPUT0"] for _ in range(5)]
        return all(np.array_equal(output, sent) for output in outputs)

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(call, range(16)))


def test_threads_and_loops_share_batches(engine: Engine) -> None:
    def block(number: int) -> int:
        return int(engine.infer("add_sub", ones() * number, ones())["OUTPUT0"][0, 0])

    async def wait() -> list[int]:
        results = await asyncio.gather(*(engine.async_infer("add_sub", ones() * n, ones()) for n in range(200)))
        return [int(result["OUTPUT0"][0, 0]) for result in results]

    with ThreadPoolExecutor(8) as threads:
        blocked = threads.map(block, range(200))
        assert asyncio.run(wait()) == list(range(1, 201))
        assert list(blocked) == list(range(1, 201))


# --- signals ---


def test_an_interrupt_ends_a_call_that_waits_and_frees_its_place(repository: Path) -> None:
    models.write_gated(repository)
    with Engine(repository) as engine, Gate(repository) as gate:
        address = ("127.0.0.1", engine.serve_metrics(port=0))

        def waiting() -> float:
            return labelled(metrics(address), "nv_inference_pending_request_count", model="slow", version="1")

        def interrupt() -> None:
            eventually(lambda: waiting() == 1, "a call waits")
            os.kill(os.getpid(), signal.SIGINT)

        first = threading.Thread(target=engine.infer, args=("slow", np.array([[HELD]])))
        first.start()
        gate.until_reached()
        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            engine.infer("slow", np.array([[0]]))
        interrupting.join()
        eventually(lambda: waiting() == 0, "nobody waits")
        gate.let_through()
        first.join()


def test_a_signal_handler_may_call_the_engine(engine: Engine, standard_repository: Path) -> None:
    answers: list[int] = []

    def handle(*_: object) -> None:
        answers.append(int(engine.infer("add_sub", ones(), ones())["OUTPUT0"][0, 0]))

    def ring(gate: Gate) -> None:
        gate.until_reached()
        os.kill(os.getpid(), signal.SIGUSR1)
        eventually(lambda: answers == [2], "the handler has its answer")
        gate.let_through()

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with Gate(standard_repository) as gate, ThreadPoolExecutor(1) as threads:
            ringing = threads.submit(ring, gate)
            assert engine.infer("slow", np.array([[HELD]]))["OUTPUT0"].item() == HELD
            ringing.result()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert answers == [2]


def test_an_interrupt_ends_a_drain(repository: Path) -> None:
    models.write_gated(repository)
    with Engine(repository) as engine, ThreadPoolExecutor(1) as threads, Gate(repository) as gate:
        executing = threads.submit(engine.infer, "slow", np.array([[HELD]]))
        gate.until_reached()
        interrupting = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))

        def drain() -> None:
            interrupting.start()
            engine.drain(float("inf"))

        with pytest.raises(KeyboardInterrupt):
            drain()
        assert not executing.done()
        interrupting.join()


@pytest.mark.parametrize("seconds", [1e19, 1e300, float("inf")])
def test_a_drain_may_take_any_time(repository: Path, seconds: float) -> None:
    models.write_gated(repository)
    with Engine(repository) as engine, ThreadPoolExecutor(2) as threads, Gate(repository) as gate:
        executing = threads.submit(engine.infer, "slow", np.array([[HELD]]))
        gate.until_reached()
        draining = threads.submit(engine.drain, seconds)
        with pytest.raises(TimeoutError):
            draining.result(0.1)
        gate.let_through()
        assert draining.result() == 0
        assert executing.result()["OUTPUT0"].item() == HELD


# --- close ---


def test_close_ends_the_calls_in_flight(repository: Path) -> None:
    models.write_slow(repository)
    engine = Engine(repository)
    started = threading.Barrier(9)

    def call(_: int) -> str:
        started.wait()
        try:
            return str(engine.infer("slow", LONG)["OUTPUT0"].item())
        except KushiError as error:
            return type(error).__name__

    with ThreadPoolExecutor(8) as threads:
        waiting = threads.map(call, range(8))
        started.wait()
        engine.close()
        assert set(waiting) <= {str(LONG.item()), "ShuttingDown"}


def test_close_ends_awaited_calls_in_flight(repository: Path) -> None:
    models.write_slow(repository)

    async def call() -> list[Any]:
        engine = Engine(repository)
        futures = [engine.async_infer("slow", LONG) for _ in range(4)]
        await asyncio.to_thread(engine.close)
        return await asyncio.gather(*futures, return_exceptions=True)

    ends = asyncio.run(call())
    assert any(isinstance(end, ShuttingDown) for end in ends)
    assert all(isinstance(end, ShuttingDown) or end["OUTPUT0"].item() == LONG.item() for end in ends)


# --- processes ---


FORK = """
import asyncio, os, sys, threading
import numpy as np
from runners import Engine, Unsupported
engine = Engine(sys.argv[1])
one = np.ones((1, 16), np.int32)
assert engine.infer("add_sub", one, one)["OUTPUT0"][0, 0] == 2

def refused(call):
    try:
        call()
    except Unsupported as error:
        assert str(error).startswith(f"this Engine belongs to process {os.getppid()} and does not work in its forked")
        assert str(error).endswith(f"child {os.getpid()}: make it after the fork")
        return
    raise AssertionError("it was not refused")

async def awaited():
    return engine.async_infer("add_sub", one, one)

child = os.fork()
if child == 0:
    refused(lambda: engine.infer("add_sub", one, one))
    refused(lambda: asyncio.run(awaited()))
    refused(engine.models)
    engine.close()
    with Engine(sys.argv[1]) as own:
        assert own.infer("add_sub", one, one)["OUTPUT0"][0, 0] == 2
    print("refused", flush=True)
    # ends as a program ends: with its exit handlers
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0
assert engine.infer("add_sub", one, one)["OUTPUT0"][0, 0] == 2
print("served")
"""


def test_a_forked_child_is_told_to_make_an_engine_of_its_own_and_can(repository: Path) -> None:
    models.write_add_sub(repository)
    assert run(FORK, repository) == "refused\nserved\n"


FORK_ON_A_LOOP = """
import asyncio, os, sys
import numpy as np
from runners import Engine
engine = Engine(sys.argv[1])

async def main():
    future = engine.async_infer("slow", np.array([[5000]]))
    child = os.fork()
    if child == 0:
        future.cancel()
        await asyncio.sleep(0)
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    print((await future)["OUTPUT0"].item())

asyncio.run(main())
"""


def test_a_fork_with_calls_in_flight_leaves_them_to_the_parent(repository: Path) -> None:
    models.write_slow(repository)
    assert run(FORK_ON_A_LOOP, repository) == "5000\n"


EXIT_WITH_AWAITED_CALLS = """
import asyncio, sys
import numpy as np
from runners import Engine
engine = Engine(sys.argv[1])
loop = asyncio.new_event_loop()

async def begin():
    return [engine.async_infer("slow", np.full((1, 1), 3000)) for _ in range(20)]

futures = loop.run_until_complete(begin())
print("leaving", flush=True)
"""

EXIT_WITH_WAITING_THREADS = """
import sys, threading
import numpy as np
from runners import Engine, ShuttingDown
engine = Engine(sys.argv[1])
begun = threading.Barrier(9)

def call():
    begun.wait()
    while True:
        try:
            engine.infer("slow", np.full((1, 1), 3000))
        except ShuttingDown:
            return

for _ in range(8):
    threading.Thread(target=call, daemon=True).start()
begun.wait()
print("leaving", flush=True)
"""

EXIT_WITH_STUBBORN_THREADS = """
import sys, threading, time
import numpy as np
from runners import Engine, KushiError
engine = Engine(sys.argv[1])
one = np.ones((1, 16), np.int32)
begun = threading.Barrier(33)

def call():
    begun.wait()
    while True:
        try:
            engine.infer("add_sub", one, one)
            engine.is_server_live()
        except KushiError:
            pass

for _ in range(32):
    threading.Thread(target=call, daemon=True).start()
begun.wait()
time.sleep(0.05)
print("leaving", flush=True)
"""

EXIT_WITH_RUNNING_LOOPS = """
import asyncio, sys, threading, time
import numpy as np
import uvloop
from runners import Engine
engine = Engine(sys.argv[1])
one = np.ones((1, 16), np.int32)

async def call():
    while True:
        await asyncio.gather(*(engine.async_infer("add_sub", one, one) for _ in range(50)), return_exceptions=True)

for run in (asyncio.run, uvloop.run) * 4:
    threading.Thread(target=run, args=(call(),), daemon=True).start()
time.sleep(0.2)
print("leaving", flush=True)
"""

EXIT_WITH_A_CALL_ELSEWHERE = """
import socket, sys, threading
import numpy as np
from runners import Client
silent = socket.create_server(("127.0.0.1", 0))
client = Client(f"http://127.0.0.1:{silent.getsockname()[1]}")
threading.Thread(target=client.infer, args=("slow", np.ones((1, 1))), daemon=True).start()
silent.accept()
print("leaving", flush=True)
"""

EXIT_WITH_LARGE_ARRAYS = """
import asyncio, sys
import numpy as np
from runners import Engine
engine = Engine(sys.argv[1])

async def begin():
    global futures, results
    results = [await engine.async_infer("identity_fp32", np.zeros((4, 5000), np.float32)) for _ in range(3)]
    futures = [engine.async_infer("identity_fp32", np.zeros((4, 5000), np.float32)) for _ in range(50)]

loop = asyncio.new_event_loop()
loop.run_until_complete(begin())
outputs = [result["OUTPUT0"] for result in results]
print("leaving", flush=True)
"""


@pytest.mark.parametrize(
    "script",
    [
        EXIT_WITH_AWAITED_CALLS,
        EXIT_WITH_WAITING_THREADS,
        EXIT_WITH_STUBBORN_THREADS,
        EXIT_WITH_RUNNING_LOOPS,
        EXIT_WITH_A_CALL_ELSEWHERE,
        EXIT_WITH_LARGE_ARRAYS,
    ],
    ids=["awaited calls", "waiting threads", "stubborn threads", "running loops", "a call elsewhere", "large arrays"],
)
def test_the_interpreter_may_exit_with_calls_in_flight(standard_repository: Path, script: str) -> None:
    assert run(script, standard_repository) == "leaving\n"


SUBINTERPRETER = """
import _xxsubinterpreters as interpreters
import kushi_native
try:
    interpreters.run_string(interpreters.create(), "import kushi_native")
except interpreters.RunFailedError as error:
    print(error)
"""


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="the module of sub-interpreters has another name")
def test_a_sub_interpreter_is_refused_clearly() -> None:
    said = run(SUBINTERPRETER)
    assert "kushi_native does not work in a sub-interpreter: import it in the main interpreter" in said
