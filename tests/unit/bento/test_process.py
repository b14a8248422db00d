"""The engine's process is started again, whatever kept it from that."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvloop

from runners.bento import process
from runners.bento.lifeline import hold_lifeline
from runners.bento.place import Place
from runners.bento.process import EngineProcess, Pauses, _has_listener, _processes_with
from tests import models
from tests.forks import forked
from tests.serving import ROOT

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

pytestmark = pytest.mark.clock

WAIT_S = 60.0
KILLS = 5
SERVES_S = 0.8
MOST_PAUSE_S = 1.0
DIES_AFTER_S = 0.4
SEVERAL_SILENCES_S = 4.0


KEEPER = """
import asyncio, pathlib, sys
from tests.unit.bento.test_process import engine_in
async def keep():
    engine = engine_in(pathlib.Path(sys.argv[1]), *sys.argv[2:])
    await engine.start()
    await asyncio.sleep(600)
asyncio.run(keep())
"""


def engine_in(folder: Path, *more: str) -> EngineProcess:
    flags = [f"--model-repository={folder / 'models'}", "--allow-http=false", "--allow-metrics=false", *more]
    return EngineProcess(flags, Place(*(folder / name for name in ("l", "h", "g", "p", "e"))), 10.0, keep_trying=True)


@pytest.fixture
def engine(tmp_path: Path) -> EngineProcess:
    models.write_add_sub(tmp_path / "models")
    return engine_in(tmp_path)


async def until_served(engine: EngineProcess) -> int:
    """The number of a process that somebody keeps at the same place, once it serves"""
    while not await engine.is_ready():
        await asyncio.sleep(0.05)
    (pid,) = _processes_with(engine._local)
    return pid


async def until_ready(engine: EngineProcess) -> int:
    """The number of its process"""
    while not await engine.is_ready():
        await asyncio.sleep(0.05)
    assert engine._process is not None
    return engine._process.pid


def open_files(pid: int, *descriptors: int) -> set[Path]:
    """Those of the descriptors, or all"""
    found = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        # One that was closed meanwhile is not open.
        with suppress(OSError):
            if not descriptors or int(path.name) in descriptors:
                found.add(path.readlink())
    return found


def run(main: Coroutine[None, None, None]) -> None:
    """On the event loop that BentoML's workers have"""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(main, WAIT_S))


def test_an_engine_that_could_not_be_started_again_is_tried_until_it_can(
    tmp_path: Path, engine: EngineProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        await engine.start()
        try:
            first = await until_ready(engine)
            with monkeypatch.context() as patch:
                patch.setattr(sys, "executable", str(tmp_path / "nothing"))
                os.kill(first, signal.SIGKILL)
                while caplog.text.count("the engine cannot be started, ") < 2:
                    await asyncio.sleep(0.05)
            assert await until_ready(engine) != first
        finally:
            await engine.stop()

    run(main())
    assert not (tmp_path / "h").exists()


def test_an_engine_that_had_served_is_started_again_at_once_however_often(
    engine: EngineProcess, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        await engine.start()
        try:
            dead: set[int] = set()
            while len(dead) < KILLS:
                pid = await until_ready(engine)
                if pid not in dead:
                    await asyncio.sleep(SERVES_S)
                    os.kill(pid, signal.SIGKILL)
                    dead.add(pid)
            await until_ready(engine)
        finally:
            await engine.stop()

    run(main())
    assert caplog.text.count("it is started again at once") == KILLS


def test_one_that_serves_for_a_moment_again_and_again_is_started_about_once_a_second() -> None:
    pauses, now, taken = Pauses(), 0.0, []
    for _ in range(100):
        pauses.started(now)
        now += DIES_AFTER_S
        taken.append(pauses.before_next(now, served=True))
        now += taken[-1]
    assert taken[:4] == [0.0] * 4
    assert max(taken) <= MOST_PAUSE_S
    assert now > 100 * MOST_PAUSE_S * 0.9


def test_one_that_dies_before_it_serves_gets_more_and_more_time_until_it_has_served_once() -> None:
    pauses = Pauses()
    assert [pauses.before_next(0, served=False) for _ in range(9)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10]
    assert pauses.before_next(0, served=True) == 0
    assert pauses.before_next(0, served=False) == 0.1


def test_an_engine_goes_on_when_its_keeper_dies_and_the_next_one_keeps_it(
    tmp_path: Path, engine: EngineProcess, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        with keeper_elsewhere(tmp_path) as keeper:
            before = await until_served(engine)
            worker = hold_lifeline(tmp_path / "e")
            keeper.kill()
            keeper.wait()
            await engine.start()
            try:
                assert await until_ready(engine) == before
                os.kill(before, signal.SIGSTOP)
                while "the engine stood still and was killed" not in caplog.text:
                    await asyncio.sleep(0.01)
                assert await until_ready(engine) != before
            finally:
                await engine.stop()
                os.close(worker)
        assert not _processes_with(f"--local-socket={tmp_path / 'l'}")

    run(main())
    assert not (tmp_path / "e").exists()


def test_an_engine_that_stands_still_when_its_keeper_dies_is_replaced(tmp_path: Path, engine: EngineProcess) -> None:
    async def main() -> None:
        with keeper_elsewhere(tmp_path) as keeper:
            before = await until_served(engine)
            worker = hold_lifeline(tmp_path / "e")
            os.kill(before, signal.SIGSTOP)
            keeper.kill()
            keeper.wait()
            await engine.start()
            try:
                assert await until_ready(engine) != before
            finally:
                await engine.stop()
                os.close(worker)

    run(main())


def test_an_engine_that_works_or_waits_for_a_processor_does_not_stand_still(
    tmp_path: Path, engine: EngineProcess
) -> None:
    async def main() -> None:
        # It answers nobody.
        with (
            socket.socket(socket.AF_UNIX) as listener,
            subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy,
        ):
            listener.bind(str(tmp_path / "l"))
            listener.listen()
            try:
                noticing = asyncio.create_task(engine._until_it_stands_still(busy.pid))
                await asyncio.wait([noticing], timeout=SEVERAL_SILENCES_S)
                assert not noticing.done()
                os.kill(busy.pid, signal.SIGSTOP)
                await asyncio.wait_for(noticing, WAIT_S)
            finally:
                busy.kill()

    run(main())


def test_an_engine_of_other_flags_is_ended_when_its_keeper_dies(tmp_path: Path, engine: EngineProcess) -> None:
    async def main() -> None:
        with keeper_elsewhere(tmp_path, "--exit-timeout-secs=5") as keeper:
            before = await until_served(engine)
            worker = hold_lifeline(tmp_path / "e")
            keeper.kill()
            keeper.wait()
            await engine.start()
            try:
                assert await until_ready(engine) != before
                assert before not in _processes_with(f"--local-socket={tmp_path / 'l'}")
            finally:
                await engine.stop()
                os.close(worker)

    run(main())


def test_an_engine_that_does_not_end_is_killed_by_its_keeper(
    engine: EngineProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process, "_GRACE_SECONDS", 0.1)
    engine._exit_seconds = 0.1

    async def main() -> None:
        await engine.start()
        os.kill(await until_ready(engine), signal.SIGSTOP)
        await engine.stop()

    run(main())
    assert "the engine has not ended 0 s after it was told to, killing it" in caplog.text
    assert not _processes_with(engine._local)


def test_an_engine_of_other_flags_that_does_not_end_is_killed_by_the_next_keeper(
    tmp_path: Path, engine: EngineProcess, caplog: pytest.LogCaptureFixture
) -> None:
    engine._exit_seconds = 0.1

    async def main() -> None:
        with keeper_elsewhere(tmp_path, "--exit-timeout-secs=5") as keeper:
            before = await until_served(engine)
            keeper.kill()
            keeper.wait()
            os.kill(before, signal.SIGSTOP)
            assert await asyncio.to_thread(engine._take_over) is None
            assert before not in _processes_with(engine._local)
        await engine.stop()

    run(main())
    assert "the engine of before has not ended 0 s after it was told to" in caplog.text


def test_a_process_that_has_the_number_of_an_engine_that_ended_is_left_alone(
    tmp_path: Path, engine: EngineProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as other:
        try:
            monkeypatch.setattr(process, "_processes_with", lambda _: [other.pid])
            assert engine._take_over() is None
            assert other.poll() is None
        finally:
            other.kill()
    os.set_blocking(engine._lifeline.reader, False)
    with pytest.raises(BlockingIOError):
        os.read(engine._lifeline.reader, 1)


def test_an_engine_ends_when_its_keeper_and_all_who_may_ask_have_died(tmp_path: Path, engine: EngineProcess) -> None:
    async def main() -> None:
        with keeper_elsewhere(tmp_path) as keeper:
            await until_served(engine)
            worker = hold_lifeline(tmp_path / "e")
            keeper.kill()
            os.close(engine._lifeline._writer)
            engine._lifeline._writer = worker
            assert await engine.is_ready()
            engine._lifeline.close()
            while _processes_with(f"--local-socket={tmp_path / 'l'}"):
                await asyncio.sleep(0.01)

    run(main())


@contextmanager
def keeper_elsewhere(folder: Path, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that keeps an engine at the place of the fixture"""
    with subprocess.Popen([sys.executable, "-c", KEEPER, str(folder), *flags], cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def test_an_engine_does_not_hold_the_port_of_its_service(engine: EngineProcess) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as port:
            port.set_inheritable(True)
            await engine.start()
            try:
                (ours,) = open_files(os.getpid(), port.fileno())
                assert ours not in open_files(await until_ready(engine))
            finally:
                await engine.stop()

    run(main())


@pytest.mark.alone
def test_without_a_descriptor_nothing_is_said_of_the_engine(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        assert _has_listener(path)

        def child() -> str:
            # all descriptors below it are taken
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            return str(_has_listener(path))

        assert forked(child) == "False"
