"""What the engine of TensorRT plans does with CUDA's driver, with a copy inside of the GPU in the place of a plan.

The same checks run on a driver that stands in for CUDA's, and where there is a GPU on that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from unittest import mock

import numpy as np
from cuda.bindings import driver

from runners.backends.pinned import PinnedBudget
from runners.backends.tensorrt import host
from runners.backends.tensorrt.cuda import DeviceMemory, Event, PinnedMemory, Stream, gpu
from runners.backends.tensorrt.host import HostBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runners.backends.tensorrt.cuda import Gpu

__all__ = ["CHECKS"]

BYTES: Final = 1 << 20


def _compute(stream: Stream, target: DeviceMemory, source: DeviceMemory) -> None:
    """A run: what a plan would be"""
    (status,) = driver.cuMemcpyDtoDAsync(target.address, source.address, BYTES, stream.handle)
    assert status == driver.CUresult.CUDA_SUCCESS


def _pinned(owner: Gpu, budget: PinnedBudget, size: int = BYTES) -> PinnedMemory:
    share = budget.ask(size)
    assert share is not None
    return PinnedMemory(owner, share)


class _Set:
    """What one batch has for itself"""

    def __init__(self, owner: Gpu) -> None:
        self.host = _pinned(owner, PinnedBudget(4 * BYTES), 2 * BYTES)
        self.given, self.made = (DeviceMemory(owner, BYTES) for _ in range(2))
        self.filled, self.computed, self.done = (Event(owner) for _ in range(3))


def batches_go_over_and_come_back(owner: Gpu) -> None:
    """On three streams that wait for one another, with two sets of buffers in turn"""
    inputs, compute, outputs = (Stream(owner, priority) for priority in (0, 1, -1))
    sets = [_Set(owner) for _ in range(2)]
    sent: dict[int, int] = {}
    for number in range(20):
        own = sets[number % 2]
        if number >= 2:
            own.done.synchronize()
            assert (own.host.bytes[BYTES:] == sent[number - 2]).all()
        sent[number] = number * 7 % 251
        own.host.bytes[:BYTES] = sent[number]
        inputs.copy_to_gpu(own.given.address, own.host.address, BYTES)
        own.filled.record(inputs)
        compute.wait_for(own.filled)
        _compute(compute, own.made, own.given)
        own.computed.record(compute)
        outputs.wait_for(own.computed)
        outputs.copy_to_host(own.host.address + BYTES, own.made.address, BYTES)
        own.done.record(outputs)
    for stream in (inputs, compute, outputs):
        stream.synchronize()


def a_graph_repeats_what_was_recorded(owner: Gpu) -> None:
    stream = Stream(owner)
    given, made = (DeviceMemory(owner, BYTES) for _ in range(2))
    host = _pinned(owner, PinnedBudget(BYTES))
    graph = stream.record_graph(lambda: _compute(stream, made, given))
    for value in (3, 200):
        host.bytes[:] = value
        stream.copy_to_gpu(given.address, host.address, BYTES)
        graph.launch(stream)
        host_after = _pinned(owner, PinnedBudget(BYTES))
        stream.copy_to_host(host_after.address, made.address, BYTES)
        stream.synchronize()
        assert (host_after.bytes == value).all()


def memory_without_a_share_of_the_budget_is_copied_too(owner: Gpu) -> None:
    stream, target = Stream(owner), DeviceMemory(owner, BYTES)
    blocks = [HostBlock(owner, PinnedBudget(0)) for _ in range(2)]
    (source, given), (back, came) = (block.room(BYTES) for block in blocks)
    given[:] = np.arange(BYTES, dtype=np.uint64).astype(np.uint8)
    stream.copy_to_gpu(target.address, source, BYTES)
    stream.copy_to_host(back, target.address, BYTES)
    stream.synchronize()
    assert (came == given).all()


def a_block_is_pinned_as_soon_as_others_give_back(owner: Gpu) -> None:
    budget = PinnedBudget(BYTES)
    others = budget.ask(BYTES)
    assert others is not None
    block = HostBlock(owner, budget)
    first, _ = block.room(BYTES)
    with mock.patch.object(host, "PinnedMemory", side_effect=AssertionError("a refusal costs no call of CUDA's")):
        for size in (BYTES, 1, BYTES):
            assert block.room(size)[0] == first
    others.give_back()
    pinned, _ = block.room(BYTES)
    assert pinned != first
    assert budget.held_bytes == BYTES
    assert block.room(1)[0] == pinned


def a_block_grows_in_a_budget_that_has_no_room_for_twice_as_much(owner: Gpu) -> None:
    budget = PinnedBudget(256 * 1024)
    block = HostBlock(owner, budget)
    for size, held in ((140 * 1024, 140 * 1024), (150 * 1024, 150 * 1024), (256 * 1024, 256 * 1024), (1, 256 * 1024)):
        assert len(block.room(size)[1]) == held
        assert budget.held_bytes == held


def what_is_pinned_stays_so_behind_a_batch_that_is_too_large(owner: Gpu) -> None:
    budget = PinnedBudget(BYTES)
    block = HostBlock(owner, budget)
    pinned, _ = block.room(BYTES)
    with mock.patch.object(host, "PinnedMemory", side_effect=AssertionError("nothing is pinned anew")):
        for size in (2 * BYTES, BYTES, 2 * BYTES):
            address, memory = block.room(size)
            assert len(memory) == size
            assert (address == pinned) == (size == BYTES)
    assert budget.held_bytes == BYTES


def a_share_comes_back_with_its_memory(owner: Gpu) -> None:
    budget = PinnedBudget(BYTES)
    memory = _pinned(owner, budget)
    assert budget.held_bytes == BYTES
    del memory
    assert budget.held_bytes == 0


def the_gpu_says_what_it_is(owner: Gpu) -> None:
    assert owner.name
    major, minor = owner.compute_capability.split(".")
    assert int(major) >= 3
    assert minor.isdigit()


def _checks() -> Mapping[str, Callable[[], None]]:
    def on_gpu(check: Callable[[Gpu], None]) -> Callable[[], None]:
        def run() -> None:
            owner = gpu(0)
            owner.enter()
            check(owner)

        return run

    checks = (
        batches_go_over_and_come_back,
        a_graph_repeats_what_was_recorded,
        memory_without_a_share_of_the_budget_is_copied_too,
        a_block_is_pinned_as_soon_as_others_give_back,
        a_block_grows_in_a_budget_that_has_no_room_for_twice_as_much,
        what_is_pinned_stays_so_behind_a_batch_that_is_too_large,
        a_share_comes_back_with_its_memory,
        the_gpu_says_what_it_is,
    )
    return {check.__name__: on_gpu(check) for check in checks}


CHECKS: Final = _checks()
