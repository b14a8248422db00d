from hypothesis import given
from hypothesis import strategies as st

from runners.backends.torch.staging import MOST_STAGED_BYTES, Staging, capacity, plan_staging


def test_tensors_lie_behind_each_other_where_any_type_may_begin() -> None:
    assert plan_staging([4, 300, 0, 1]) == Staging((0, 256, 768, 768), 769)


def test_what_is_not_to_be_copied_takes_no_room() -> None:
    assert plan_staging([None, 10, None]) == Staging((None, 0, None), 10)


def test_a_tensor_without_room_is_left_out_and_a_smaller_one_behind_it_is_not() -> None:
    assert plan_staging([1000, 2000, 1000], most=2048) == Staging((0, None, 1024), 2024)


def test_the_bound_itself_is_room_enough() -> None:
    assert plan_staging([MOST_STAGED_BYTES]).offsets == (0,)
    assert plan_staging([MOST_STAGED_BYTES + 1]).offsets == (None,)


@given(st.lists(st.none() | st.integers(0, 5000)), st.integers(0, 20_000))
def test_tensors_never_overlap_nor_pass_the_bound(sizes: list[int | None], most: int) -> None:
    plan = plan_staging(sizes, most)
    end = 0
    for size, offset in zip(sizes, plan.offsets, strict=True):
        if size is not None and offset is not None:
            assert offset >= end
            assert offset % 256 == 0
            end = offset + size
    assert plan.bytes == end <= most


def test_memory_grows_by_powers_of_two_up_to_the_bound_and_never_shrinks() -> None:
    assert capacity(0, 0) == 0
    assert capacity(1, 0) == 64 << 10
    assert capacity((64 << 10) + 1, 64 << 10) == 128 << 10
    assert capacity(10, 128 << 10) == 128 << 10
    assert capacity(900, 0, most=1000) == 1000
