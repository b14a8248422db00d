"""Pictures of digits, down to what the served model was trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from PIL import Image

from runners.uploads import UnreadableImage
from tests.small_service import MODELS
from tests.small_service.digits import MAX_DIGITS, Box, answer, many, one
from tests.small_service.handwriting import handwritten

if TYPE_CHECKING:
    import numpy.typing as npt

    Grey = npt.NDArray[np.uint8]

MODEL = MODELS / "digits" / "1" / "model.onnx"
PICTURES = arrays(np.uint8, array_shapes(min_dims=2, max_dims=2, max_side=24))


def paper(height: int, width: int) -> Grey:
    return np.full((height, width), 240, np.uint8)


def put(page: Grey, digit: int, left: int, top: int, size: int) -> None:
    large = Image.fromarray(handwritten(digit)).resize((size, size), Image.Resampling.BICUBIC)
    part = page[top : top + size, left : left + size]
    np.minimum(part, (240 - 220 * np.asarray(large).clip(0, 1)).astype(np.uint8), out=part)


def picture(digit: int, size: int) -> Grey:
    page = paper(2 * size, 3 * size)
    put(page, digit, size, size // 3, size)
    return page


def bar(page: Grey, left: int, top: int, right: int, bottom: int) -> None:
    page[top:bottom, left:right] = 10


def read(arrays: npt.NDArray[np.float32]) -> list[int]:
    session = onnxruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {"image": arrays})
    return [int(digit) for digit in answer(logits)[0]]


def test_blocks_of_pixels_become_shares_of_ink() -> None:
    drawn = np.zeros((32, 32), np.uint8)
    drawn[:, 4:28] = 200
    drawn[0:2, 4:8] = 0
    drawn[8:12, 10:12] = 0
    found = one(np.pad(drawn, ((5, 9), (0, 20))))[0, 0]
    expected = np.zeros((8, 8), np.float32)
    expected[:, 1:7] = 1
    expected[0, 1] = expected[2, 2] = 0.5
    assert found.dtype == np.float32
    assert np.allclose(found, expected, atol=1e-6)


def test_a_digit_fills_the_height_and_stands_in_the_middle() -> None:
    page = paper(100, 300)
    bar(page, 40, 20, 60, 84)
    assert np.allclose(one(page), np.tile([0, 0, 0.25, 1, 1, 0.25, 0, 0], (8, 1)))


def test_what_is_wider_than_high_is_squeezed_into_the_square() -> None:
    page = paper(100, 300)
    bar(page, 40, 20, 240, 40)
    assert np.allclose(one(page), 1)


@pytest.mark.parametrize("size", [28, 65, 200, 900])
def test_a_digit_of_any_size_comes_out_as_the_model_learned_it(size: int) -> None:
    for digit in range(10):
        found = one(picture(digit, size))
        assert (found.shape, found.dtype.name) == ((1, 1, 8, 8), "float32")
        assert np.abs(found[0, 0] - handwritten(digit)).mean() < 0.15
        assert np.corrcoef(found.ravel(), handwritten(digit).ravel())[0, 1] > 0.85


def test_light_on_dark_is_the_same_as_dark_on_light() -> None:
    page = picture(5, 60)
    assert np.allclose(one(page), one(255 - page), atol=1e-6)


def test_place_and_contrast_do_not_matter() -> None:
    page = picture(3, 64)
    moved = np.roll(page, (40, -50), (0, 1))
    assert np.allclose(one(page), one(moved), atol=1e-6)
    assert np.allclose(one(page), one(page // 2 + 60), atol=0.05)


def test_specks_beside_a_digit_do_not_count() -> None:
    page = picture(7, 64)
    expected = one(page)
    bar(page, 2, 2, 5, 5)
    bar(page, 180, 120, 183, 122)
    assert np.allclose(one(page), expected, atol=0.1)


def test_the_served_model_reads_all_ten_through_one_and_through_many() -> None:
    assert read(np.concatenate([one(picture(digit, 80)) for digit in range(10)])) == list(range(10))
    page = paper(300, 700)
    for digit in range(10):
        put(page, digit, 20 + digit % 5 * 130, 20 + digit // 5 * 140 + digit % 3 * 8, 90)
    boxes, images = many(page)
    assert len(boxes) == 10
    assert read(images) == list(range(10))
    assert read(many(255 - page)[1]) == list(range(10))


@pytest.mark.parametrize(
    "page", [paper(50, 60), np.zeros((1, 1), np.uint8), np.tile(np.uint8(200) + np.arange(30, dtype=np.uint8), (30, 1))]
)
def test_nothing_drawn_is_an_error_for_one_and_no_digits_for_many(page: Grey) -> None:
    with pytest.raises(UnreadableImage, match=r"^expected a digit, found nothing drawn on the image$"):
        one(page)
    boxes, images = many(page)
    assert boxes == []
    assert (images.shape, images.dtype.name) == ((0, 1, 8, 8), "float32")


def test_boxes_are_those_of_the_page_and_lines_are_read_from_left_to_right() -> None:
    page = paper(200, 300)
    for left, top in [(200, 22), (20, 30), (110, 10), (150, 120), (60, 112)]:
        bar(page, left, top, left + 20, top + 40)
    boxes, _ = many(page)
    assert boxes == [
        Box(20, 30, 40, 70),
        Box(110, 10, 130, 50),
        Box(200, 22, 220, 62),
        Box(60, 112, 80, 152),
        Box(150, 120, 170, 160),
    ]


def test_a_line_may_rise_further_than_a_digit_is_high() -> None:
    page = paper(300, 600)
    for column in range(9):
        for top in (160, 240):
            bar(page, 30 + 60 * column, top - 12 * column, 50 + 60 * column, top + 40 - 12 * column)
    boxes, _ = many(page)
    assert [box.top for box in boxes] == [*range(160, 60, -12), *range(240, 140, -12)]


def test_boxes_of_a_large_page_are_in_its_own_pixels() -> None:
    page = paper(2000, 5000)
    bar(page, 1000, 400, 1200, 1400)
    bar(page, 4000, 500, 4996, 2000)
    (first, second), _ = many(page)
    assert np.allclose(first, (1000, 400, 1200, 1400), atol=4)
    assert np.allclose(second, (4000, 500, 4996, 2000), atol=4)
    assert second.right <= 5000
    assert second.bottom <= 2000


def test_the_parts_of_a_digit_belong_together_and_dust_is_dropped() -> None:
    page = paper(120, 300)
    bar(page, 20, 40, 50, 90)
    bar(page, 30, 22, 60, 32)
    bar(page, 120, 25, 140, 90)
    for left in range(180, 290, 12):
        bar(page, left, 60, left + 4, 64)
    boxes, _ = many(page)
    assert boxes == [Box(20, 22, 60, 90), Box(120, 25, 140, 90)]


def test_neighbours_inside_a_box_are_no_part_of_the_digit() -> None:
    page = paper(100, 100)
    bar(page, 10, 10, 20, 90)
    bar(page, 10, 80, 90, 90)
    alone = one(page)
    bar(page, 40, 5, 60, 70)
    boxes, images = many(page)
    assert boxes == [Box(10, 10, 90, 90), Box(40, 5, 60, 70)]
    assert np.allclose(images[0], alone[0], atol=1e-6)


def grid(digits: int) -> Grey:
    page = paper(800, 800)
    for digit in range(digits):
        bar(page, 10 + digit % 20 * 38, 10 + digit // 20 * 50, 22 + digit % 20 * 38, 40 + digit // 20 * 50)
    return page


def test_a_page_holds_at_most_256_digits() -> None:
    boxes, images = many(grid(MAX_DIGITS))
    assert (len(boxes), images.shape) == (256, (256, 1, 8, 8))
    with pytest.raises(UnreadableImage, match=r"^expected a page with at most 256 digits, found 257$"):
        many(grid(MAX_DIGITS + 1))


def test_a_pattern_is_no_page_of_digits() -> None:
    pattern = paper(200, 200)
    pattern[::4, ::4] = 0
    with pytest.raises(UnreadableImage, match=r"^expected a page with at most 256 digits, found 2500 marks on it$"):
        many(pattern)


@settings(deadline=None)
@given(PICTURES)
def test_any_picture_has_an_answer_or_our_exception(image: Grey) -> None:
    boxes, images = many(image)
    assert len(boxes) == len(images)
    height, width = image.shape
    for box in boxes:
        assert 0 <= box.left < box.right <= width
        assert 0 <= box.top < box.bottom <= height
    assert images.size == 0 or (images.min() >= 0 and images.max() <= 1)
    try:
        found = one(image)
    except UnreadableImage:
        return
    assert found.shape == (1, 1, 8, 8)
    assert 0 <= found.min() <= found.max() <= 1
    assert found.any()


@given(arrays(np.float32, st.tuples(st.integers(1, 5), st.just(10)), elements=st.floats(-100, 100, width=32)))
def test_probabilities_add_up_and_the_largest_is_the_digit(logits: npt.NDArray[np.float32]) -> None:
    digits, probabilities = answer(logits)
    assert np.allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    assert np.array_equal(digits, logits.argmax(axis=1))
    assert np.array_equal(probabilities.max(axis=1), probabilities[np.arange(len(digits)), digits])


def test_two_equal_logits_share() -> None:
    digits, probabilities = answer(np.array([[1000, 1000] + 8 * [-1000]], np.float32))
    assert digits.tolist() == [0]
    assert probabilities.tolist() == [[0.5, 0.5] + 8 * [0]]
