"""Memory that PyTorch keeps is given back, other than while a CUDA graph is captured: nobody waits, nothing is lost."""

from __future__ import annotations

import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from runners.backends.torch import memory
from runners.backends.torch.memory import Captures
from tests.torch.models import parameter
from tests.torch.test_running import around

if TYPE_CHECKING:
    from collections.abc import Callable


class Engine:
    """Something with a finalizer, as an engine has it"""


@pytest.fixture
def emptied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was given back, as on a machine with a GPU"""
    done: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: done.append("gpu"))
    monkeypatch.setattr(torch._C, "_host_emptyCache", lambda: done.append("pinned"), raising=False)
    return done


def test_memory_is_given_back_at_once_where_nothing_is_captured(emptied: list[str]) -> None:
    memory.give_back_memory()
    assert sorted(emptied) == ["gpu", "pinned"]


@pytest.mark.timeout(60)
def test_a_finalizer_on_the_thread_that_captures_leaves_it_to_the_capture(emptied: list[str]) -> None:
    engine = Engine()
    weakref.finalize(engine, memory.give_back_memory)
    with memory.CAPTURES.one():
        del engine
        assert emptied == []
    assert sorted(emptied) == ["gpu", "pinned"]


def test_a_capture_that_fails_gives_back_what_was_wished_meanwhile(emptied: list[str]) -> None:
    def capture() -> None:
        with memory.CAPTURES.one():
            memory.give_back_memory()
            raise RuntimeError("operation not permitted")

    with pytest.raises(RuntimeError, match="not permitted"):
        capture()
    assert sorted(emptied) == ["gpu", "pinned"]


def test_what_many_wish_during_one_capture_is_done_once(emptied: list[str]) -> None:
    with memory.CAPTURES.one(), ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            pool.submit(memory.give_back_memory)
    assert sorted(emptied) == ["gpu", "pinned"]


def test_what_is_wished_while_another_wish_is_done_is_done_as_well() -> None:
    captures, done = Captures(), []

    def second() -> None:
        done.append("second")

    def first() -> None:
        done.append("first")
        captures.outside(second)

    captures.outside(first)
    assert done == ["first", "second"]


def test_no_wish_is_lost_and_none_is_done_inside_of_a_capture() -> None:
    captures, inside, wrong = Captures(), threading.Event(), []

    def wished(done: threading.Event) -> Callable[[], None]:
        def do() -> None:
            wrong.extend(["inside"] if inside.is_set() else [])
            done.set()

        return do

    def capture(_: int) -> None:
        for _turn in range(100):
            with captures.one():
                inside.set()
                inside.clear()

    def wish(_: int) -> list[threading.Event]:
        events = [threading.Event() for _turn in range(100)]
        for event in events:
            captures.outside(wished(event))
        return events

    with ThreadPoolExecutor(6) as pool:
        capturing = [pool.submit(capture, number) for number in range(3)]
        wishing = [pool.submit(wish, number) for number in range(3)]
        for one in capturing:
            one.result()
        events = [event for one in wishing for event in one.result()]
    assert all(event.is_set() for event in events)
    assert not wrong


def test_a_failure_to_give_back_leaves_the_lock_free() -> None:
    captures, done = Captures(), []

    def fail() -> None:
        raise RuntimeError("CUDA is broken")

    with pytest.raises(RuntimeError, match="broken"):
        captures.outside(fail)
    captures.outside(lambda: done.append("next"))
    assert done == ["next"]


def test_cleaning_the_cache_after_a_batch_leaves_pinned_memory_alone(emptied: list[str]) -> None:
    engine = around(lambda arguments: arguments, parameter("ENABLE_CACHE_CLEANING", "true"))
    engine._uses_gpu = True
    engine.execute([np.zeros(1, np.float32)], [True])
    assert emptied == ["gpu"]
