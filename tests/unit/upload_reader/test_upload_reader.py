"""Uploads are read in a process of its own: what they do there is theirs alone."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runners import InvalidInput, Overloaded
from runners.upload_reader import UploadReader
from tests.processes import lives
from tests.serving import ROOT
from tests.unit.upload_reader import reading
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def awaited(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    """Runs a test in an event loop"""

    @functools.wraps(test)
    def run(*arguments: object, **options: object) -> None:
        asyncio.run(test(*arguments, **options))

    return run


@pytest.fixture
def file(tmp_path: Path) -> Callable[[bytes], Path]:
    def made(data: bytes) -> Path:
        path = tmp_path / f"upload-{len(list(tmp_path.iterdir()))}"
        path.write_bytes(data)
        return path

    return made


@awaited
async def test_functions_are_called_one_after_the_other(file: Callable[[bytes], Path]) -> None:
    reader = UploadReader()
    assert await reader.read(file(b"abc"), reading.length) == 3
    assert await reader.read(file(b"abc"), reading.length, str) == "3"
    assert await reader.read(file(b"abc"), reading.process) != os.getpid()


@awaited
async def test_an_exception_is_raised_here(file: Callable[[bytes], Path]) -> None:
    with pytest.raises(reading.Refused) as refused:
        await UploadReader().read(file(b"abc"), reading.refuse)
    assert str(refused.value) == "3 bytes"


@awaited
async def test_the_log_shows_where_a_function_failed(file: Callable[[bytes], Path]) -> None:
    with pytest.raises(reading.Refused) as failed:
        await UploadReader().read(file(b"abc"), reading.refuse)
    told = "".join(traceback.format_exception(failed.value))
    assert 'raise Refused(f"{len(data)} bytes")' in told


@awaited
async def test_what_cannot_be_handed_over_is_the_fault_of_the_function(file: Callable[[bytes], Path]) -> None:
    reader = UploadReader()
    with pytest.raises(TypeError, match=r"^cannot pickle 'generator' object$"):
        await reader.read(file(b"abc"), reading.lines)
    with pytest.raises(AttributeError, match=r"^Can't pickle local object"):
        await reader.read(file(b"abc"), lambda data: data)
    assert await reader.read(file(b"abc"), reading.length) == 3


@awaited
async def test_what_is_the_fault_of_a_client_is_invalid_input(file: Callable[[bytes], Path]) -> None:
    reader = UploadReader(client_errors=(reading.Refused, UnicodeError))
    with pytest.raises(InvalidInput, match=r"^3 bytes$") as refused:
        await reader.read(file(b"abc"), reading.refuse)
    assert isinstance(refused.value.__cause__, reading.Refused)
    with pytest.raises(ValueError, match="invalid literal") as failed:
        await reader.read(file(b"abc"), int)
    assert type(failed.value) is ValueError


@awaited
async def test_all_uploads_are_read_by_the_same_process(file: Callable[[bytes], Path]) -> None:
    reader = UploadReader()
    processes = {await reader.read(file(b""), reading.process) for _ in range(3)}
    assert len(processes) == 1


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS])
@awaited
async def test_a_file_that_crashes_it_is_malformed(
    file: Callable[[bytes], Path], number: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    reader = UploadReader()
    with pytest.raises(InvalidInput, match=r"^the upload is malformed, or takes more than 256 MiB to read$"):
        await reader.read(file(str(int(number)).encode()), reading.end)
    assert number.name in caplog.text
    assert await reader.read(file(b"abc"), reading.length) == 3


@awaited
async def test_whoever_kills_it_makes_nobody_guilty(file: Callable[[bytes], Path]) -> None:
    reader = UploadReader()
    with pytest.raises(Overloaded, match=r"^the process that reads uploads has ended$"):
        await reader.read(file(str(int(signal.SIGKILL)).encode()), reading.end)
    idle = await reader.read(file(b""), reading.process)
    os.kill(idle, signal.SIGKILL)
    eventually(lambda: not lives(idle), "it has ended")
    assert await reader.read(file(b"abc"), reading.length) == 3


@awaited
async def test_a_process_that_stands_still_is_killed(
    file: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = UploadReader()
    os.kill(await reader.read(file(b""), reading.process), signal.SIGSTOP)
    monkeypatch.setattr("runners.upload_reader.reader._UNANSWERED_SECONDS", 0.2)
    with pytest.raises(Overloaded, match=r"^the process that reads uploads has ended$"):
        await reader.read(file(b"abc"), reading.length)
    monkeypatch.undo()
    assert await reader.read(file(b"abc"), reading.length) == 3


@awaited
async def test_a_file_that_takes_too_long_is_refused(file: Callable[[bytes], Path]) -> None:
    reader = UploadReader(seconds=0.2)
    with pytest.raises(InvalidInput, match=r"^the upload takes more than 0.2 s to read$"):
        await reader.read(file(b""), reading.compute)
    assert await reader.read(file(b"abc"), reading.length) == 3


@awaited
async def test_the_time_of_one_file_is_not_that_of_the_next(file: Callable[[bytes], Path]) -> None:
    reader = UploadReader(seconds=0.2)
    first = await reader.read(file(b""), reading.process)
    for _ in range(200):
        assert await reader.read(file(b""), reading.process) == first


@awaited
async def test_a_file_that_takes_too_much_memory_is_refused(file: Callable[[bytes], Path]) -> None:
    reader = UploadReader(memory_bytes=64 << 20)
    with pytest.raises(InvalidInput, match=r"^the upload takes more than 64 MiB to read$"):
        await reader.read(file(b""), reading.allocate)
    assert await reader.read(file(b"abc"), reading.length) == 3


@awaited
async def test_memory_that_earlier_files_have_left_behind_is_not_missing_for_long(
    file: Callable[[bytes], Path],
) -> None:
    reader = UploadReader(memory_bytes=64 << 20)
    sizes = []
    for _ in range(8):
        with suppress(InvalidInput):
            sizes.append(await reader.read(file(b"abc"), reading.keep_memory))
    assert len(sizes) >= 4


@awaited
async def test_what_decoders_write_is_not_in_the_log(
    file: Callable[[bytes], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    assert await UploadReader().read(file(b"abc"), reading.say_much) == 3
    assert capfd.readouterr() == ("", "")


@pytest.mark.clock
@awaited
async def test_who_waits_too_long_is_told_to_come_again(file: Callable[[bytes], Path], tmp_path: Path) -> None:
    # long enough for the first one on a machine that is busy
    reader = UploadReader(patience=1)
    begun = tmp_path / "begun"
    first = asyncio.create_task(reader.read(file(bytes(begun)), reading.until_there))
    await until(begun.exists)
    with pytest.raises(Overloaded, match=r"^an upload has waited 1 s to be read$"):
        await reader.read(file(b""), reading.length)
    # what has begun is not given up
    tmp_path.joinpath("begungo").touch()
    assert await first == "begun"


@pytest.mark.clock
@awaited
async def test_the_lowest_turn_goes_first(file: Callable[[bytes], Path], tmp_path: Path) -> None:
    reader, begun, order = UploadReader(), tmp_path / "begun", list[str]()
    first = asyncio.create_task(reader.read(file(bytes(begun)), reading.until_there))
    await until(begun.exists)

    async def read(name: str, turn: int) -> None:
        await reader.read(file(b"abc"), reading.length, turn=turn)
        order.append(name)

    tasks = [asyncio.create_task(read(*one)) for one in (("late", 3), ("given up", 0), ("first", 0), ("later", 3))]
    await asyncio.sleep(0)
    tasks[1].cancel()
    tmp_path.joinpath("begungo").touch()
    await asyncio.gather(first, *tasks, return_exceptions=True)
    assert order == ["first", "late", "later"]


@pytest.mark.clock
@awaited
async def test_no_more_wait_than_may(file: Callable[[bytes], Path], tmp_path: Path) -> None:
    reader = UploadReader(most_waiting=2)
    begun = tmp_path / "begun"
    first = asyncio.create_task(reader.read(file(bytes(begun)), reading.until_there))
    await until(begun.exists)
    second = asyncio.create_task(reader.read(file(b"abc"), reading.length))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match=r"^2 uploads wait to be read, and no more may$"):
        await reader.read(file(b""), reading.length)
    tmp_path.joinpath("begungo").touch()
    assert (await first, await second) == ("begun", 3)
    assert await reader.read(file(b"abc"), reading.length) == 3


@pytest.mark.clock
@awaited
async def test_who_has_gone_is_not_read(file: Callable[[bytes], Path], tmp_path: Path) -> None:
    reader = UploadReader()
    begun, gone = tmp_path / "begun", tmp_path / "gone"
    first = asyncio.create_task(reader.read(file(bytes(begun)), reading.until_there))
    await until(begun.exists)
    second = asyncio.create_task(reader.read(file(bytes(gone)), reading.until_there))
    await asyncio.sleep(0)
    second.cancel()
    with suppress(asyncio.CancelledError):
        await second
    tmp_path.joinpath("begungo").touch()
    assert await first == "begun"
    assert await reader.read(file(b"abc"), reading.length) == 3
    assert not gone.exists()


@pytest.mark.clock
@awaited
async def test_a_fault_that_nobody_waits_for_any_more_is_not_in_the_log(
    file: Callable[[bytes], Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reader = UploadReader()
    begun = tmp_path / "begun"
    first = asyncio.create_task(reader.read(file(bytes(begun)), reading.until_there, reading.refuse_text))
    await until(begun.exists)
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first
    del first
    tmp_path.joinpath("begungo").touch()
    assert await reader.read(file(b"abc"), reading.length) == 3
    gc.collect()
    assert not caplog.records


@awaited
async def test_where_no_process_can_be_started_clients_are_told_to_come_again(
    file: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = UploadReader()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", "/nonexistent")
        with pytest.raises(Overloaded, match=r"^no process can be started to read uploads: No such file or directory$"):
            await reader.read(file(b"abc"), reading.length)
    assert await reader.read(file(b"abc"), reading.length) == 3


_WORKER = """
import asyncio, sys
from pathlib import Path
from runners.upload_reader import UploadReader
from tests.unit.upload_reader import reading

reader = UploadReader()
print(asyncio.run(reader.read(Path(sys.argv[1]), reading.process)), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("ending", ["end of its input", "SIGKILL", "frozen"])
def test_it_ends_with_the_worker(file: Callable[[bytes], Path], ending: str) -> None:
    command = [sys.executable, "-c", _WORKER, str(file(b""))]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        own = int(worker.stdout.readline())
        # as a terminal and a supervisor do
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(own, number)
        assert lives(own)
        if ending == "SIGKILL":
            worker.kill()
        if ending == "frozen":
            os.kill(own, signal.SIGSTOP)
        worker.stdin.close()
        worker.wait()
        if ending == "SIGKILL":
            eventually(lambda: not lives(own), "it has ended")
        assert not lives(own)


async def until(happened: Callable[[], bool]) -> None:
    while not happened():
        await asyncio.sleep(0.005)
