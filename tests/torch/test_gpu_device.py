"""The way of tensors to a GPU and back: pinned memory, streams of the instances, and threads that go on meanwhile."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from runners.backends.torch.device import Lane, Lanes
from runners.backends.torch.engine import Plan, TorchEngine
from runners.backends.torch.names import Leaf, Signature
from runners.backends.torch.options import read_options
from runners.backends.torch.program import Program
from runners.backends.torch.streams import streams_of
from runners.repository.config import parse
from tests.torch.models import budget, model_config
from tests.torch.test_gpu import ONE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

pytestmark = pytest.mark.gpu

GPU: Final = torch.device("cuda", 0)


def around(run: Callable[[Sequence[Any]], Sequence[Any]], instances: int = 1) -> TorchEngine:
    """An engine on the GPU whose program is a function of Python's."""
    signature = Signature("forward(x)", (Leaf(("x",)),), results=(Leaf(()),))
    program = Program(signature, run, defaults=(None,), writes=frozenset(), stateful=False)
    options = read_options(parse(model_config("m", *ONE), "config.pbtxt"))
    plan = Plan((0,), ("FP32",), (0,), ("OUTPUT__0",))
    return TorchEngine(program, plan, GPU, options, threads=1, concurrent=True, budget=budget(), instances=instances)


def test_copies_are_those_of_pinned_memory_and_on_the_stream_of_the_instance() -> None:
    seen: list[int] = []

    def run(arguments: Sequence[Any]) -> Sequence[Any]:
        seen.append(torch.cuda.current_stream().cuda_stream)
        return [arguments[0] * 2]

    engine = around(run)
    (lane,) = engine._held.lanes.own
    value = np.ones((1024, 256), np.float32)
    engine.execute([value], [True])
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        (got,) = engine.execute([value], [True])
    np.testing.assert_array_equal(got, value * 2)
    assert lane.stream is not None
    assert set(seen) == {lane.stream.cuda_stream}
    copies = {event.name for event in trace.events() if event.name.startswith("Memcpy")}
    assert copies == {"Memcpy HtoD (Pinned -> Device)", "Memcpy DtoH (Device -> Pinned)"}


def test_each_instance_has_a_stream_that_nobody_else_has() -> None:
    before = len(streams_of(0)._free)
    lanes = Lanes(GPU, 40, budget())
    handles = {lane.stream.cuda_stream for lane in lanes.own if lane.stream}
    assert len(handles) == 40
    assert not handles & {torch.cuda.Stream().cuda_stream for _ in range(64)}
    lanes.close()
    assert len(streams_of(0)._free) == max(before, 40)


def test_memory_of_the_host_is_pinned_and_reused() -> None:
    lane = Lane(GPU, budget())
    with lane.context(), torch.inference_mode():
        value = torch.ones(1000)
        one = lane.stage({0: value})[0]
        two = lane.stage({0: value})[0]
        assert one.is_pinned()
        assert one.data_ptr() == two.data_ptr()
        (first,) = lane.receive([torch.ones(1000, device=GPU)])
        (second,) = lane.receive([torch.zeros(1000, device=GPU)])
    assert first.is_pinned()
    assert (first.sum(), second.sum()) == (1000, 0)
    lane.close()


def test_what_has_no_share_of_pinned_memory_gets_there_all_the_same() -> None:
    lane = Lane(GPU, budget(0))
    value = torch.arange(10_000.0)
    with lane.context():
        assert not lane.stage({0: value})[0].is_pinned()
        sent = lane.send({0: value})[0]
        (got,) = lane.receive([sent + 1])
    assert torch.equal(got, value + 1)
    assert not got.is_pinned()
    lane.close()


def test_pinned_outputs_hold_their_share_until_nobody_has_them() -> None:
    pinned = budget()
    lane = Lane(GPU, pinned)
    with lane.context():
        (got,) = lane.receive([torch.ones(1000, device=GPU)])
    assert got.is_pinned()
    array = got.numpy()
    del got
    assert pinned.held_bytes == 64 << 10
    del array
    assert pinned.held_bytes == 0
    lane.close()


def test_what_has_no_room_in_pinned_memory_gets_there_all_the_same() -> None:
    lane = Lane(GPU, budget(), most=1000)
    value = torch.arange(10_000.0)
    with lane.context():
        sent = lane.send({0: value})[0]
        (got,) = lane.receive([sent + 1])
    assert torch.equal(got, value + 1)
    lane.close()


def test_batches_of_many_instances_do_not_mix() -> None:
    engine = around(lambda arguments: [arguments[0] * 2 + 1], instances=4)
    wrong: list[int] = []

    def ask(number: int) -> None:
        for turn in range(200):
            value = np.full((1 + turn % 50, 100), number * 1000 + turn, np.float32)
            (got,) = engine.execute([value], [True])
            if not np.array_equal(got, value * 2 + 1):
                wrong.append(turn)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_other_threads_of_python_run_while_a_gpu_computes() -> None:
    matrix = torch.eye(8192, device=GPU)

    def run(arguments: Sequence[Any]) -> Sequence[Any]:
        product = matrix
        for _ in range(100):
            product = product @ matrix
        return [arguments[0] + 0 * product[0, 0]]

    engine = around(run)
    engine.execute([np.ones((1, 1), np.float32)], [True])
    answered, pause = threading.Event(), threading.Event()

    def ask() -> None:
        engine.execute([np.ones((1, 1), np.float32)], [True])
        answered.set()

    asking = threading.Thread(target=ask)
    asking.start()
    turns = 0
    while not answered.is_set():
        pause.wait(0.0005)
        turns += 1
    asking.join()
    # one that waits for the lock until the answer is there has two or three
    assert turns >= 10
