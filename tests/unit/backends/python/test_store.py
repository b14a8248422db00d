"""What is made once in the user's cache"""

import fcntl
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from runners.backends.python.store import made_once
from runners.errors import ConfigInvalid, ModelUnavailable
from runners.wanted import work_for
from tests.serving import ROOT


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "kushi" / "environments"


def fill(place: Path) -> None:
    (place / "file").write_text(str(place))


def test_it_is_made_where_it_stays() -> None:
    place = made_once("a", "it", fill)
    assert (place / "file").read_text() == str(place)


def test_many_at_once_make_it_once() -> None:
    calls: list[Path] = []

    def make(place: Path) -> None:
        calls.append(place)
        fill(place)

    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(made_once("a", "it", make))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert found == calls * 8


def test_nobody_waits_for_others_who_is_given_up(cache: Path) -> None:
    cache.mkdir(parents=True)
    step: Future[None] = Future()
    failures: list[Exception] = []

    def wait() -> None:
        work_for(step)
        try:
            made_once("a", "it", fill)
        except ModelUnavailable as error:
            failures.append(error)

    with (cache / "a.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = threading.Thread(target=wait)
        waiting.start()
        step.cancel()
        waiting.join(30)
        assert not waiting.is_alive()
    assert [str(error) for error in failures] == ["the load was given up"]


def test_what_could_not_be_made_leaves_nothing_and_is_tried_again(cache: Path) -> None:
    def fail(place: Path) -> None:
        fill(place)
        raise ConfigInvalid("no")

    for _ in range(2):
        with pytest.raises(ConfigInvalid, match="no"):
            made_once("a", "it", fail)
        assert [path.name for path in cache.iterdir()] == ["a.lock"]
    assert made_once("a", "it", fill).is_dir()


DYING = """
import signal
from runners.backends.python.store import made_once
def make(place):
    (place / "half").touch()
    print("made half", flush=True)
    signal.pause()
made_once("a", "it", make)
"""


def test_what_a_process_left_behind_half_made_is_made_anew(cache: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DYING], cwd=ROOT, env={**os.environ}, stdout=subprocess.PIPE, text=True
    ) as dying:
        assert dying.stdout is not None
        assert dying.stdout.readline() == "made half\n"
        waiting = threading.Thread(target=made_once, args=("a", "it", fill))
        waiting.start()
        dying.send_signal(signal.SIGKILL)
        waiting.join(30)
    assert not waiting.is_alive()
    (place,) = (path for path in cache.iterdir() if path.is_dir() and not path.is_symlink())
    assert [path.name for path in place.iterdir()] == ["file"]


def test_what_was_removed_by_hand_is_made_again() -> None:
    place = made_once("a", "it", fill)
    (place / "file").unlink()
    place.rmdir()
    assert (made_once("a", "it", fill) / "file").is_file()
