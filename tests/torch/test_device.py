"""How tensors get to a device and back, and which graph repeats a batch: on the CPU, where copies are plain ones."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
import torch

from runners.backends.torch.device import Host, Lane, Lanes, Staged
from runners.backends.torch.graph_plan import GraphPlan
from runners.backends.torch.graphs import CaptureError, Graphs, capture_on
from runners.backends.torch.streams import Pool
from runners.backends.torch.values import array_of
from tests.torch.models import budget
from tests.torch.test_running import around

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from runners.backends.torch.graphs import Results

CPU: Final = torch.device("cpu")


def repeating(work: Callable[[], Results]) -> tuple[Callable[[], object], Results]:
    """As a graph does: it writes to the results of the first time, wherever they are."""
    results = work()

    def repeat() -> None:
        again = work()
        keys = list(results) if isinstance(results, dict) else range(len(results))
        for key in keys:
            results[key].copy_(again[key])  # type: ignore[index]  # the same kind both times

    return repeat, results


def graphs(
    lane: Lane, run: Callable[[Mapping[Any, Any]], Results], *, pads: bool = False, sizes: tuple[int, ...] = (1, 4)
) -> Graphs:
    return Graphs(GraphPlan(sizes, ((2,),), ("FP32",), pads), [0], lane, run, repeating)


def test_inputs_keep_their_values_types_and_shapes_on_the_way() -> None:
    given: dict[int | str, Any] = {
        0: torch.arange(6, dtype=torch.float16).reshape(2, 3),
        "mask": torch.tensor([True, False]),
        2: torch.tensor(7, dtype=torch.int64),
        3: torch.zeros(0, 4),
        4: torch.arange(8.0).reshape(2, 4).t(),
        5: [["text"]],
    }
    sent = Lane(CPU, budget()).send(given)
    assert list(sent) == list(given)
    assert sent[5] == [["text"]]
    for place, value in given.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(sent[place], value)
            assert sent[place].dtype == value.dtype
            assert sent[place].numel() == 0 or sent[place].data_ptr() != value.data_ptr()


def test_memory_is_reused_from_batch_to_batch_and_bounded() -> None:
    staged = Staged(budget(), pinned=False, most=1 << 17)
    (first,) = staged.like([torch.zeros(100)])
    (second,) = staged.like([torch.zeros(50)])
    assert first is not None
    assert second is not None
    assert first.data_ptr() == second.data_ptr()
    large, small = staged.like([torch.zeros(1 << 16), torch.zeros(3)])
    assert large is None
    assert small is not None
    assert staged.bytes <= 1 << 17


def test_the_share_of_outputs_is_held_while_anybody_has_one_of_them() -> None:
    pinned = budget()
    lane = Lane(CPU, pinned)
    first, second = (array_of(value) for value in lane.receive([torch.ones(1000), torch.zeros(1000)]))
    held = pinned.held_bytes
    assert held >= 8000
    (later,) = lane.receive([torch.ones(1000)])
    assert pinned.held_bytes > held
    del later, first
    part = second[10:20]
    del second
    assert pinned.held_bytes == held
    assert part.tolist() == [0] * 10
    del part
    assert pinned.held_bytes == 0


def test_outputs_without_a_share_come_back_all_the_same() -> None:
    pinned = budget(80 << 10)
    lane = Lane(CPU, pinned)
    (first,) = lane.receive([torch.ones(1000)])
    given = torch.ones(1000)
    (second,) = lane.receive([given])
    assert second is given, "not by a detour over other memory"
    del first
    (third,) = lane.receive([given])
    assert third is not given
    assert pinned.held_bytes == 64 << 10


def test_inputs_that_grow_give_their_share_back_with_the_old_memory() -> None:
    pinned = budget()
    staged = Staged(pinned, pinned=False)
    (small,) = staged.like([torch.zeros(1000)])
    (large,) = staged.like([torch.zeros(100_000)])
    assert large is not None
    assert pinned.held_bytes == (64 << 10) + (512 << 10)
    del small
    assert pinned.held_bytes == staged.bytes == 512 << 10
    staged.close()
    assert pinned.held_bytes == 512 << 10
    del large
    assert pinned.held_bytes == 0


def test_inputs_without_a_share_go_directly_and_the_next_batch_asks_again() -> None:
    pinned = budget(64 << 10)
    other = pinned.ask(1)
    assert other
    staged = Staged(pinned, pinned=False)
    assert staged.like([torch.zeros(1000)]) == [None]
    assert staged.bytes == 0
    value = torch.arange(1000.0)
    assert Lane(CPU, pinned).stage({0: value})[0] is value
    other.give_back()
    assert staged.like([torch.zeros(1000)]) != [None]


def test_memory_that_cannot_be_had_leaves_no_share_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **_named: object) -> torch.Tensor:
        raise RuntimeError("CUDA error: out of memory")

    pinned = budget()
    staged = Staged(pinned, pinned=False)
    monkeypatch.setattr(torch, "empty", refuse)
    with pytest.raises(RuntimeError, match="out of memory"):
        staged.like([torch.zeros(1000)])
    assert pinned.held_bytes == 0


def test_an_input_without_room_is_sent_all_the_same() -> None:
    value = torch.arange(1000.0)
    assert torch.equal(Lane(CPU, budget(), most=100).send({0: value})[0], value)


@pytest.mark.parametrize("first", [torch.inference_mode, torch.no_grad])
def test_memory_that_one_mode_made_serves_in_the_other(first: Callable[[], Any]) -> None:
    lane = Lane(CPU, budget())
    second = torch.no_grad if first is torch.inference_mode else torch.inference_mode
    for number, mode in enumerate((first, second)):
        with mode():
            sent = lane.send({0: torch.full((3,), float(number))})
            assert lane.receive([sent[0] + 1])[0].tolist() == [number + 1] * 3


def test_outputs_stay_as_they_are_while_later_batches_run() -> None:
    lane = Lane(CPU, budget())
    (one,) = lane.receive([torch.ones(4)])
    (two,) = lane.receive([torch.full((4,), 2.0)])
    assert (one.tolist(), two.tolist()) == ([1] * 4, [2] * 4)


def test_outputs_are_what_the_model_gave_whatever_their_order_in_memory() -> None:
    turned = torch.arange(6.0).reshape(2, 3).t()
    got = Lane(CPU, budget()).receive(
        [turned, None, ["text"], torch.tensor(3), torch.zeros(0, 2, dtype=torch.bfloat16)]
    )
    assert torch.equal(got[0], turned)
    assert got[0].is_contiguous()
    assert got[1:3] == [None, ["text"]]
    assert got[3].shape == ()
    assert (got[4].shape, got[4].dtype) == ((0, 2), torch.bfloat16)


def test_an_output_without_room_comes_back_all_the_same() -> None:
    value = torch.arange(1000.0)
    assert torch.equal(Lane(CPU, budget(), most=100).receive([value])[0], value)


def test_a_batch_takes_the_graph_of_its_size() -> None:
    lane, seen = Lane(CPU, budget()), []

    def run(values: Mapping[Any, Any]) -> Results:
        seen.append(len(values[0]))
        return [values[0] * 2, values[0].sum(1)]

    made = graphs(lane, run)
    assert seen == [4, 1]
    for number, rows in enumerate((4, 1, 4)):
        value = torch.full((rows, 2), float(number))
        size = made.size_for({0: value})
        assert size == rows
        doubled, summed = made.run(rows, {0: value})
        assert torch.equal(doubled, value * 2)
        assert torch.equal(summed, value.sum(1))
    assert made.size_for({0: torch.zeros(3, 2)}) is None
    assert made.size_for({}) is None


def test_rows_that_fill_a_batch_up_are_zeros_and_do_not_come_back() -> None:
    made = graphs(
        Lane(CPU, budget()), lambda values: {"each": values[0] + 1, "all": values[0].sum().reshape(1)}, pads=True
    )
    made.run(4, {0: torch.full((4, 2), 9.0)})
    got = made.run(4, {0: torch.ones(3, 2)})
    assert isinstance(got, dict)
    assert got["each"].tolist() == [[2, 2]] * 3
    assert got["all"].tolist() == [6]


def test_a_graph_that_cannot_be_captured_says_of_which_size_and_why() -> None:
    def run(values: Mapping[Any, Any]) -> Results:
        if len(values[0]) == 1:
            raise RuntimeError("operation not permitted when stream is capturing")
        return [values[0]]

    text = "a CUDA graph of 1 rows cannot be captured: operation not permitted when stream is capturing"
    with pytest.raises(CaptureError, match=re.escape(text)):
        graphs(Lane(CPU, budget()), run)


def test_an_engine_executes_batches_by_graphs_where_there_is_one() -> None:
    calls: list[int] = []

    def run(arguments: Sequence[Any]) -> Sequence[Any]:
        calls.append(len(arguments[0]))
        return [arguments[0] + 1]

    engine = around(run)
    lane = Lane(CPU, budget())
    engine._held.lanes.take = lambda: lane  # type: ignore[method-assign]
    with torch.inference_mode():
        lane.graphs = graphs(lane, engine._run_program, pads=True, sizes=(2, 4))
    calls.clear()
    for rows, ran in ((2, 2), (3, 4), (4, 4), (5, 5)):
        value = np.full((rows, 2), rows, np.float32)
        (got,) = engine.execute([value], [True])
        np.testing.assert_array_equal(got, value + 1)
        assert calls.pop() == ran


def test_on_the_cpu_all_threads_share_the_memory_of_the_host() -> None:
    lanes = Lanes(CPU, 3, budget())
    assert lanes.own == ()
    lane = lanes.take()
    assert lane is lanes.take()
    assert isinstance(lane, Host)
    value = torch.ones(2)
    assert lane.send({0: value}, ())[0] is value
    assert lane.send({0: value}, {0})[0] is not value


def test_each_batch_has_a_lane_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runners.backends.torch.device.Lane", lambda _, given: Lane(CPU, given))
    lanes = Lanes(torch.device("meta"), 2, budget())
    one, two = lanes.take(), lanes.take()
    assert {one, two} == {*lanes.own}
    third: list[object] = []
    waiting = threading.Thread(target=lambda: third.append(lanes.take()))
    waiting.start()
    lanes.give_back(two)
    waiting.join(30)
    assert third == [two]


def test_a_stream_is_made_where_none_is_free_and_kept_for_the_next() -> None:
    made = iter("abc")
    pool = Pool(lambda: next(made))
    first, second = pool.take(), pool.take()
    assert (first, second) == ("a", "b")
    pool.give_back(first)
    assert [pool.take(), pool.take()] == ["a", "c"]


class Cuda:
    """What PyTorch has of captures, with its generator of random numbers as it was before PyTorch 2.13."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.random_is_captured = False
        self.given_back: list[object] = []
        cuda = self

        class Graph:
            ended = False

            def pool(self) -> None:
                if not self.ended:
                    raise RuntimeError("without a preceding successful capture")

            def reset(self) -> None:
                pass

            def replay(self) -> None:
                pass

        class Captured:
            def __init__(self, graph: Graph, **_: object) -> None:
                self._graph = graph

            def __enter__(self) -> None:
                cuda.random_is_captured = True

            def __exit__(self, kind: object, *_: object) -> None:
                if kind is not None:
                    raise RuntimeError("operation failed due to a previous error during capture")
                cuda.random_is_captured = False
                self._graph.ended = True

        monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
        monkeypatch.setattr(torch.cuda, "graph", Captured)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
        monkeypatch.setattr(
            torch._C, "_cuda_endAllocateToPool", lambda _, pool: self.given_back.append(pool), raising=False
        )
        monkeypatch.setattr(torch._C, "_cuda_releasePool", lambda *_: None, raising=False)


def test_random_numbers_may_be_drawn_after_a_capture_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda(monkeypatch)
    times: list[None] = []

    def work() -> Results:
        times.append(None)
        if len(times) > 3:
            raise ValueError("the fourth time, which is captured")
        return [torch.zeros(1)]

    with pytest.raises(RuntimeError, match="a previous error during capture"):
        capture_on(Lane(CPU, budget()))(work)
    assert len(times) == 4
    assert not cuda.random_is_captured
    assert len(cuda.given_back) == 1
