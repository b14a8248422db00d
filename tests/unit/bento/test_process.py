"""The engine's process is started again, whatever kept it from that."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvloop

from runners.bento.place import Place
from runners.bento.process import EngineProcess
from tests import models

if TYPE_CHECKING:
    from collections.abc import Coroutine

WAIT_S = 60.0


@pytest.fixture
def engine(tmp_path: Path) -> EngineProcess:
    models.write_add_sub(tmp_path / "models")
    flags = [f"--model-repository={tmp_path / 'models'}", "--allow-http=false", "--allow-metrics=false"]
    return EngineProcess(flags, Place(*(tmp_path / name for name in ("l", "h", "p"))), 10.0, keep_trying=True)


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
