"""Windows that see characters, and the words that they make."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocessing.words import Spelled, characters, corners_of, spelled

KNOWN = characters("a\nb\nc\n中\n \n")


def read(pattern: str, *, sure: float = 0.9, filled: float = 1.0) -> Spelled | None:
    """A letter for each window; a point is none"""
    ids = np.array([0 if letter == "." else KNOWN.index(letter) for letter in pattern], np.int64)
    return spelled(ids, np.full(len(ids), sure, np.float32), KNOWN, filled=filled)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("a", "a"),
        (".aa.bb.", "ab"),
        ("aa.aa", "aa"),
        ("ab. .ca", "ab ca"),
        ("  ..a. . b  ", "a b"),
        ("中.中", "中中"),
    ],
)
def test_windows_that_see_one_character_make_one(pattern: str, text: str) -> None:
    found = read(pattern)
    assert found is not None
    assert found.text == text
    assert [word.text for word in found.words] == text.split()


@pytest.mark.parametrize("pattern", ["", "....", ". . "])
def test_nothing_to_read_is_none(pattern: str) -> None:
    assert read(pattern) is None


def test_what_is_not_sure_enough_is_none() -> None:
    assert read("abc", sure=0.49) is None
    assert read("abc", sure=0.51) is not None


def test_the_confidence_is_that_of_the_characters_and_not_of_the_windows_without() -> None:
    found = spelled(np.array([0, 1, 1, 5, 2]), np.array([0.1, 0.8, 0.2, 0.9, 0.7], np.float32), KNOWN)
    assert found is not None
    assert found.confidence == pytest.approx((0.8 + 0.9 + 0.7) / 3)
    assert [word.confidence for word in found.words] == pytest.approx([0.8, 0.7])


def test_words_meet_in_the_middle_between_their_letters_and_the_blank() -> None:
    found = read("a..b. .c..")
    assert found is not None
    assert [place for word in found.words for place in word[2:]] == pytest.approx([0, 0.45, 0.65, 1.0], abs=0.06)


def test_windows_behind_the_end_of_the_line_do_not_count() -> None:
    whole, half = read("ab. .c"), read("ab. .c......", filled=0.5)
    assert whole is not None
    assert half is not None
    assert [word[2:] for word in half.words] == [word[2:] for word in whole.words]


@given(st.text("abc. 中", max_size=40))
def test_words_are_in_order_apart_and_within_the_line(pattern: str) -> None:
    found = read(pattern)
    places = [place for word in found.words for place in (word.begin, word.end)] if found else []
    assert places == sorted(places)
    assert all(0 <= place <= 1 for place in places)
    assert "".join(pattern.split()) == "" or found is not None or set(pattern) <= set(". ")


def test_a_part_of_a_line_has_its_corners_on_the_edges_of_the_line() -> None:
    line = np.array([[10, 20], [110, 20], [110, 40], [10, 40]], np.float32)
    assert corners_of(line, 0.1, 0.5).tolist() == [[20, 20], [60, 20], [60, 40], [20, 40]]
    assert corners_of(line, 0, 1).tolist() == line.tolist()
