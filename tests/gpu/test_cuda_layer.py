"""What the engine of TensorRT plans does with CUDA's driver, without TensorRT."""

from __future__ import annotations

from importlib import import_module

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.needs("cuda-bindings")]

NAMES = (
    "batches_go_over_and_come_back",
    "a_graph_repeats_what_was_recorded",
    "memory_without_a_share_of_the_budget_is_copied_too",
    "a_block_is_pinned_as_soon_as_others_give_back",
    "a_block_grows_in_a_budget_that_has_no_room_for_twice_as_much",
    "what_is_pinned_stays_so_behind_a_batch_that_is_too_large",
    "a_share_comes_back_with_its_memory",
    "the_gpu_says_what_it_is",
)


@pytest.mark.parametrize("name", NAMES)
def test_on_a_gpu(name: str) -> None:
    # without a driver it could not even be imported
    import_module("tests.cuda_layer").CHECKS[name]()
