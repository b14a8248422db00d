"""Rectangles around what a detector marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from PIL import Image, ImageDraw

from preprocessing.boxes import MOST_LINES, lines

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]


def turned(centre: tuple[float, float], sides: tuple[float, float], degrees: float) -> Floats:
    """The corners of a rectangle from its upper left one clockwise"""
    angle = np.radians(degrees)
    along, across = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
    half, low = along * sides[0] / 2, across * sides[1] / 2
    place = np.array(centre)
    return np.array([place - half - low, place + half - low, place + half + low, place - half + low], np.float32)


def marked(size: tuple[int, int], *rectangles: Floats, sure: float = 0.9) -> Floats:
    image = Image.new("F", size)
    for corners in rectangles:
        ImageDraw.Draw(image).polygon([(x, y) for x, y in corners.tolist()], fill=sure)
    return np.asarray(image)


def grown(sides: tuple[float, float]) -> tuple[float, float]:
    growth = 1.6 * sides[0] * sides[1] / (sides[0] + sides[1])
    return sides[0] + growth, sides[1] + growth


@pytest.mark.parametrize("degrees", [0, 3, -7, 20, -44])
def test_a_line_is_found_where_it_lies_and_grows_by_what_the_detector_took_off(degrees: float) -> None:
    (found,) = lines(marked((320, 320), turned((160, 150), (150, 12), degrees)), 320, 320)
    assert np.abs(found - turned((160, 150), grown((150, 12)), degrees)).max() < 5


def test_a_line_that_runs_upwards_begins_at_its_upper_left_corner() -> None:
    (found,) = lines(marked((320, 320), turned((160, 150), (12, 150), 2)), 320, 320)
    assert np.abs(found - turned((160, 150), grown((12, 150)), 2)).max() < 3


def test_the_corners_are_pixels_of_the_page_and_on_it() -> None:
    (found,) = lines(marked((100, 100), turned((50, 50), (98, 20), 0)), 1000, 500)
    assert found.min(0).tolist()[0] == 0
    assert found.max(0).tolist()[0] == 1000
    assert found[:, 1].max() < 500 * 0.8


def test_lines_that_do_not_touch_are_lines_of_their_own() -> None:
    found = lines(marked((300, 200), *(turned((150, y), (200, 10), 0) for y in (30, 60, 90))), 300, 200)
    assert sorted(found.mean(1)[:, 1].round().tolist()) == pytest.approx([30, 60, 90], abs=2)


def test_specks_and_what_is_not_sure_enough_are_no_lines() -> None:
    specks = [turned((x, 20), (1, 1), 0) for x in range(20, 300, 20)]
    assert lines(marked((320, 64), *specks), 320, 64).shape == (0, 4, 2)
    assert lines(marked((320, 64), turned((160, 32), (150, 12), 0), sure=0.4), 320, 64).shape == (0, 4, 2)


def test_a_page_of_noise_has_a_bounded_number_of_lines() -> None:
    rows = [turned((x, y), (10, 6), 0) for x in range(20, 1180, 20) for y in range(12, 600, 12)]
    assert len(rows) > 2 * MOST_LINES
    assert len(lines(marked((1200, 620), *rows), 1200, 620)) == MOST_LINES


def test_what_is_drawn_around_one_another_is_bounded() -> None:
    rings = Image.new("F", (800, 800))
    for inset in range(0, 390, 12):
        ImageDraw.Draw(rings).rectangle((inset, inset, 799 - inset, 799 - inset), outline=0.9, width=9)
    found = lines(np.asarray(rings), 800, 800)
    sides = found.max(1) - found.min(1)
    assert 0 < sides.prod(1).sum() <= 16 * 800 * 800


@settings(deadline=None)
@given(arrays(np.float32, array_shapes(min_dims=2, max_dims=2, max_side=40), elements=st.floats(0, 1, width=32)))
def test_whatever_is_marked_lines_are_on_the_page(marks: Floats) -> None:
    found = lines(marks, 500, 300)
    assert found.shape[1:] == (4, 2)
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    assert (found <= (500, 300)).all()
