"""Files of buckets on this machine."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import textwrap
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, TextIO

import pytest

from runners.buckets import cache as module
from runners.buckets.cache import Cache
from runners.errors import ConfigInvalid
from tests.serving import ROOT
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEYS = [f"{number:040x}" for number in range(10**30, 10**30 + 5)]
LARGE = 2 * 1024 * 1024


def kept(cache: Cache, key: str, size: int = LARGE, *, settles: bool = True) -> None:
    """As a server fetches it, which ends then."""
    served = cache.served()
    (served.new / key).write_bytes(b"x" * size)
    cache.put(key, size, served.new / key)
    if settles:
        cache.settle([key])
        eventually(lambda: is_settled(cache, key), "it is on the disk")
    served.close()


def is_settled(cache: Cache, key: str) -> bool:
    return cache.file(key).stat().st_mtime_ns % 10**9 == 0


def has(cache: Cache, key: str, size: int = LARGE) -> bool:
    """Whether a server can take it."""
    served = cache.served()
    try:
        return cache.take(key, size, served.new / key)
    finally:
        served.close()


def test_a_file_stays_for_the_next_one(tmp_path: Path) -> None:
    kept(Cache(tmp_path, 10**9), KEYS[0])
    cache = Cache(tmp_path, 10**9)
    assert has(cache, KEYS[0])
    assert not has(cache, KEYS[0], LARGE + 1)
    assert not has(cache, KEYS[1])
    assert not [*(tmp_path / "served").iterdir()]


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_file_is_taken(tmp_path: Path, size: int) -> None:
    cache = Cache(tmp_path, 10**9)
    kept(cache, KEYS[0], size)
    served = cache.served()
    assert cache.take(KEYS[0], size, served.path / "model.onnx")
    assert (served.path / "model.onnx").read_bytes() == b"x" * size
    assert not cache.take(KEYS[1], size, served.path / "other")
    assert not (served.path / "other").exists()
    served.close()
    assert not served.path.exists()
    assert has(cache, KEYS[0], size)


def test_small_files_belong_to_the_model(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 10**9)
    kept(cache, KEYS[0], 10)
    served = cache.served()
    cache.take(KEYS[0], 10, served.path / "state.json")
    (served.path / "state.json").chmod(0o644)
    (served.path / "state.json").write_bytes(b"of the model's own")
    assert has(cache, KEYS[0], 10)
    assert cache.file(KEYS[0]).read_bytes() == b"x" * 10


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_file_that_was_written_to_is_none(tmp_path: Path, size: int) -> None:
    cache = Cache(tmp_path, 10**9)
    kept(cache, KEYS[0], size)
    cache.file(KEYS[0]).chmod(0o644)
    with cache.file(KEYS[0]).open("r+b") as file:
        file.write(b"y")
    assert not has(cache, KEYS[0], size)
    kept(cache, KEYS[0], size)
    assert has(cache, KEYS[0], size)


def test_one_that_is_written_to_before_the_disk_has_it_stays_none(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 10**9)
    kept(cache, KEYS[0], settles=False)
    cache.file(KEYS[0]).chmod(0o644)
    with cache.file(KEYS[0]).open("r+b") as file:
        file.write(b"y")
    cache._settle([KEYS[0]])
    assert not has(cache, KEYS[0])


def test_a_file_that_the_disk_may_not_have_counts_until_the_machine_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path, 10**9)
    kept(cache, KEYS[0], settles=False)
    kept(cache, KEYS[1])
    assert has(cache, KEYS[0])
    boot = module._this_boot()
    monkeypatch.setattr(module, "_this_boot", lambda: boot + 1_000_000)
    assert [has(cache, key) for key in KEYS[:2]] == [False, True]


def test_files_that_nobody_uses_go_the_oldest_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 3 * LARGE)
    for age, key in enumerate(KEYS[:3]):
        kept(cache, key)
        os.utime(cache.file(key), ns=(age * 10**9, cache.file(key).stat().st_mtime_ns))
    served = cache.served()
    os.link(cache.file(KEYS[0]), served.path / "in_use")
    cache.make_room(LARGE)
    assert [cache.file(key).exists() for key in KEYS[:3]] == [True, False, True]
    cache.make_room(2 * LARGE)
    assert [cache.file(key).exists() for key in KEYS[:3]] == [True, False, False]


def test_room_that_is_there_is_not_counted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path, 10 * LARGE)
    cache.make_room(LARGE)
    counted: list[int] = []
    monkeypatch.setattr(cache, "_count", counted.append)
    for _ in range(8):
        cache.make_room(LARGE)
    assert counted == [LARGE] * 4


def test_what_is_in_use_stays_and_the_log_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = Cache(tmp_path, LARGE)
    kept(cache, KEYS[0])
    served = cache.served()
    cache.take(KEYS[0], LARGE, served.path / "in_use")
    cache.make_room(LARGE)
    assert has(cache, KEYS[0])
    assert f"grows to {2 * LARGE} bytes, more than {LARGE} (--bucket-cache-bytes): all of it is in use" in caplog.text


def test_a_full_disk_is_told_before_it_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path, 10**12)
    kept(cache, KEYS[0])
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    cache.make_room(LARGE)
    assert not has(cache, KEYS[0])
    with pytest.raises(ConfigInvalid, match="there is no room for 4194304 bytes"):
        cache.make_room(2 * LARGE)


def test_a_file_system_without_links_gets_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    cache = Cache(tmp_path, 10**9)
    kept(cache, KEYS[0])
    served = cache.served()
    assert cache.take(KEYS[0], LARGE, served.path / "model.onnx")
    assert (served.path / "model.onnx").stat().st_nlink == 1


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigInvalid, match=r"cannot be written: .*; --bucket-cache-directory chooses another place"):
        Cache(tmp_path / "file", 0)


def test_the_directory_is_one_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Cache(tmp_path / "cache", 0)
    assert {(tmp_path / "cache" / name).stat().st_mode & 0o777 for name in ("files", "served", "listings")} == {0o700}
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(ConfigInvalid, match="which is another user's: --bucket-cache-directory chooses"):
        Cache(tmp_path / "cache", 0)


def test_a_child_that_was_forked_meanwhile_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[int] = []
    with monkeypatch.context() as patch:
        for name in ("flock", "fcntl"):
            patch.setattr(fcntl, name, partial(as_a_child_has_it, getattr(fcntl, name), copies))
        cache = Cache(tmp_path, 0)
        with cache._alone(), cache.fetching(KEYS[0], "m"):
            pass
    with cache._alone(), cache.fetching(KEYS[0], "m"):
        pass
    for copy in copies:
        os.close(copy)


def as_a_child_has_it(lock: Callable[..., None], copies: list[int], file: TextIO | int, *how: object) -> None:
    copies.append(os.dup(file if isinstance(file, int) else file.fileno()))
    lock(file, *how)


PROGRAM = """
    import sys
    from pathlib import Path
    from runners.buckets.cache import Cache

    cache = Cache(Path(sys.argv[1]), 10**9)
    {work}
    print(sys.argv[2], flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path: Path) -> Callable[[str], subprocess.Popen[str]]:
    """Another process with the same cache."""

    def start(work: str) -> subprocess.Popen[str]:
        program = textwrap.dedent(PROGRAM).format(work=work)
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path), "ready"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    return start


def test_what_a_process_leaves_that_was_killed_goes(
    tmp_path: Path, other: Callable[[str], subprocess.Popen[str]]
) -> None:
    with other("served = cache.served(); (served.path / 'm').mkdir()") as process:
        (lock,) = (tmp_path / "served").glob("*.lock")
        Cache(tmp_path, 0)
        assert lock.with_suffix("").exists()
        process.send_signal(signal.SIGKILL)
        process.wait()
    Cache(tmp_path, 0)
    assert not [*(tmp_path / "served").iterdir()]


def test_one_process_fetches_and_others_wait(tmp_path: Path, other: Callable[[str], subprocess.Popen[str]]) -> None:
    cache = Cache(tmp_path, 0)
    with other(f"around = cache.fetching('{KEYS[0]}', 'm'); around.__enter__()") as process:
        with (tmp_path / "fetching").open("a") as file:
            assert not module._is_held(file.fileno(), int(KEYS[0][:15], 16))
        with cache.fetching("f" * 40, "n"):
            pass
        process.kill()
        process.wait()
    with cache.fetching(KEYS[0], "m"):
        pass


def test_what_was_listed_is_kept(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 0)
    assert cache.listing("s3://bucket") == ""
    cache.keep_listing("s3://bucket", "one")
    cache.keep_listing("s3://bucket", "two")
    assert cache.listing("s3://bucket") == "two"
    assert len([*(tmp_path / "listings").iterdir()]) == 1
