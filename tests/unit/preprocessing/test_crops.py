"""Lines cut out of pages, as the models take them."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from preprocessing import crops, pages
from preprocessing.crops import Crop

PAGE = np.zeros((200, 300, 3), np.uint8)
PAGE[50:90, 40:240] = (255, 128, 0)
LINE = np.array([[40, 50], [240, 50], [240, 90], [40, 90]], np.float32)


def test_a_line_is_cut_out_with_its_pixels() -> None:
    crop = crops.cut(Image.fromarray(PAGE), LINE)
    assert crop.image.size == (200, 40)
    assert (np.asarray(crop.image)[2:-2, 2:-2] == (255, 128, 0)).all()


def test_a_line_that_is_turned_is_cut_out_upright() -> None:
    image = Image.fromarray(PAGE).rotate(-15, expand=False, resample=Image.Resampling.BICUBIC)
    angle = np.radians(15)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]], np.float32)
    middle = np.array([150, 100], np.float32)
    turned = ((LINE - middle) @ turn + middle).astype(np.float32)
    crop = crops.cut(image, turned)
    assert crop.image.size == (200, 40)
    assert (np.abs(np.asarray(crop.image)[4:-4, 4:-4].astype(int) - (255, 128, 0)) < 12).all()


def test_a_line_that_is_higher_than_wide_is_laid_on_its_side() -> None:
    page = PAGE.transpose(1, 0, 2)
    down = np.array([[50, 40], [90, 40], [90, 240], [50, 240]], np.float32)
    crop = crops.cut(Image.fromarray(page), down)
    assert crop.image.size == (200, 40)
    # as one that runs down the page
    assert crop.corners.tolist() == [[90, 40], [90, 240], [50, 240], [50, 40]]


def test_a_crop_has_no_more_pixels_than_are_looked_at() -> None:
    page = Image.new("RGB", (4000, 3000))
    whole = np.array([[0, 0], [4000, 0], [4000, 3000], [0, 3000]], np.float32)
    assert crops.cut(page, whole).image.size == (256, 192)
    long = np.array([[0, 0], [4000, 0], [4000, 2], [0, 2]], np.float32)
    assert crops.cut(page, long).image.size == (4000, 2)


def test_a_line_upside_down_is_turned_with_its_corners() -> None:
    crop = Crop(Image.fromarray(PAGE[50:90, 40:240]), LINE)
    assert crops.upright(crop, np.array([[0.2, 0.8]], np.float32)) is crop
    turned = crops.upright(crop, np.array([[0.05, 0.95]], np.float32))
    assert turned.corners.tolist() == [[240, 90], [40, 90], [40, 50], [240, 50]]


@pytest.mark.parametrize(
    ("size", "width", "filled"),
    [
        ((200, 48), 224, 200 / 224),
        ((160, 48), 160, 1),
        ((641, 48), 704, 641 / 704),
        ((10, 480), 64, 1 / 64),
        ((9000, 48), 3840, 1),
    ],
)
def test_widths_are_few_and_the_rest_is_grey(size: tuple[int, int], width: int, filled: float) -> None:
    pixels, share = crops.for_recogniser(Crop(Image.new("RGB", size, "white"), LINE))
    assert pixels.shape == (1, 3, 48, width)
    assert share == pytest.approx(filled)
    own = round(width * filled)
    assert (pixels[..., :own] == 1).all()
    assert (pixels[..., own:] == 0).all()


def test_the_models_see_blue_first() -> None:
    assert pages.normalised(np.array([[[255, 0, 51]]], np.uint8)).ravel().tolist() == pytest.approx([-0.6, -1, 1])


@pytest.mark.parametrize(
    ("size", "shown", "seen"),
    [
        ((1000, 1500), (1000, 1500), (992, 1504)),
        ((8000, 5000), (4000, 2500), (1984, 1248)),
        ((100, 40), (100, 40), (384, 160)),
        ((1, 1), (1, 1), (32, 32)),
    ],
)
def test_pages_are_brought_to_bounded_sizes(
    size: tuple[int, int], shown: tuple[int, int], seen: tuple[int, int]
) -> None:
    page, pixels = pages.prepared(np.full((size[1], size[0], 3), 255, np.uint8))
    assert page.shape == (shown[1], shown[0], 3)
    assert pixels.shape == (1, 3, seen[1], seen[0])
