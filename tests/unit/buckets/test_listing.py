"""Objects that were listed, as models."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.buckets.listing import ListedModel, Object, models_of, read_listing, written_listing
from runners.errors import ConfigInvalid


def listed(*paths: str, size: int = 1) -> list[Object]:
    return [Object(path, size, "tag") for path in paths]


def test_objects_are_files_of_models() -> None:
    models = models_of(listed("m/config.pbtxt", "m/1/model.onnx", "m/12/a/b", "n/1/model.onnx", "beside.txt"))
    assert [*models] == ["m", "n"]
    assert {*models["m"].files} == {"config.pbtxt", "1/model.onnx", "12/a/b"}
    assert models["m"].folders == {"1", "12", "12/a"}
    assert models["m"].versions == [1, 12]


def test_marks_of_folders_are_no_files() -> None:
    objects = [*listed("m", "m/1", "m/assets", "m/2", size=0), *listed("m/assets/a", "m/2/model.onnx")]
    assert models_of(objects)["m"] == ListedModel(
        "m",
        {"assets/a": Object("m/assets/a", 1, "tag"), "2/model.onnx": Object("m/2/model.onnx", 1, "tag")},
        frozenset({"1", "2", "assets"}),
    )


def test_an_empty_file_is_one() -> None:
    assert {*models_of(listed("m/1/.gitkeep", size=0))["m"].files} == {"1/.gitkeep"}


@pytest.mark.parametrize("name", [".hidden/1/model.onnx", "/1/model.onnx", "file"])
def test_what_is_no_model(name: str) -> None:
    assert models_of(listed(name)) == {}


@pytest.mark.parametrize(
    ("paths", "fault"),
    [
        (("m/a", "m/a/b"), "object 'm/a' lies where other objects have a folder"),
        (("m/../b",), "a part of its name is '..'"),
        (("m/a//b",), "a part of its name is ''"),
        (("m/./b",), "a part of its name is '.'"),
        (("m/a\0b",), "cannot be a file"),
        (("m/\ud800/b",), "a part of its name is '\\ud800'"),
        ((f"m/{'x' * 256}",), "cannot be a file"),
        ((f"{'ü' * 128}/a",), "cannot be a file"),
        ((*(f"m/{number}.txt" for number in range(10_001)),), "it has 10001 objects, expected at most 10000"),
    ],
)
def test_a_model_that_cannot_be_a_folder_says_why(paths: tuple[str, ...], fault: str) -> None:
    (model,) = models_of([*listed(*paths)]).values()
    assert fault in model.fault


NAMES = st.text(st.characters(exclude_characters="/"), max_size=4)


@given(st.lists(st.tuples(st.lists(NAMES, min_size=1, max_size=4), st.integers(0, 2), st.text(max_size=3))))
def test_a_listing_is_read_as_it_was_written(stated: list[tuple[list[str], int, str]]) -> None:
    models = models_of(Object("/".join(path), size, tag) for path, size, tag in stated)
    assert read_listing(written_listing(models)) == models


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"models": {}}',
        '{"models, form 1": {"m": {}}}',
        '{"models, form 1": 3}',
    ],
)
def test_what_is_no_listing_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="what was listed before cannot be read"):
        read_listing(text)
