"""Engines in processes that fork or exit, and in interpreters that are not the main one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import models
from tests.integration.programs import run

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


# where the parent has many threads, a child does not even have the memory of all their stacks
@pytest.mark.parametrize("instances", [1, 64])
def test_a_forked_child_is_told_to_make_an_engine_of_its_own_and_can(instances: int, repository: Path) -> None:
    models.write_add_sub(repository, extra=f"instance_group [ {{ count: {instances} }} ]")
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
