"""What is said of files that lie where nobody looks for them, and of files that are no models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runners.errors import ConfigInvalid
from runners.repository.advice import check_content, in_sight, lies_beside

if TYPE_CHECKING:
    from pathlib import Path


def put(path: Path, content: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_model_beside_its_versions_is_to_be_moved(tmp_path: Path) -> None:
    file = put(tmp_path / "m" / "model.onnx")
    assert in_sight(tmp_path / "m", None) == f"'{file}' lies beside the versions, move it to '{tmp_path}/m/1'"
    (tmp_path / "m" / "3").mkdir()
    assert in_sight(tmp_path / "m", tmp_path / "m" / "3").endswith(f"move it to '{tmp_path}/m/3'")


@pytest.mark.parametrize(("directory", "number"), [("v1", "1"), ("version_12", "12"), ("02", "2")])
def test_a_version_whose_name_is_no_number_is_to_be_renamed(tmp_path: Path, directory: str, number: str) -> None:
    put(tmp_path / "m" / directory / "model.pt")
    assert in_sight(tmp_path / "m", None) == f"'{tmp_path}/m/{directory}' is no version, rename it '{number}'"


@pytest.mark.parametrize("directory", ["v1.2", "latest", "warmup"])
def test_other_directories_are_left_alone(tmp_path: Path, directory: str) -> None:
    put(tmp_path / "m" / directory / "model.pt")
    assert not in_sight(tmp_path / "m", None)


def test_a_model_of_another_name_is_named(tmp_path: Path) -> None:
    version = put(tmp_path / "m" / "1" / "resnet.onnx").parent
    put(version / "notes.txt")
    expected = "'resnet.onnx' lies there: rename it, or say default_model_filename: \"resnet.onnx\" in config.pbtxt"
    assert in_sight(tmp_path / "m", version) == expected
    assert lies_beside(version / "model.onnx") == f": {expected}"
    assert not lies_beside(version / "model.pt")
    assert not lies_beside(tmp_path / "nowhere" / "model.onnx")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a pointer of Git LFS and not the model i"),
        (b"\n<!DOCTYPE html>\n<html>", "is a page of HTML and no model: look at what was downloaded"),
        (b"<HTML><body>404", "is a page of HTML and no model"),
    ],
)
def test_what_is_no_model_is_told_by_its_beginning(tmp_path: Path, content: bytes, text: str) -> None:
    file = put(tmp_path / "model.onnx", content)
    with pytest.raises(ConfigInvalid) as raised:
        check_content(file)
    assert str(raised.value).startswith(f"'{file}' {text}")


def test_all_else_is_for_the_engine_to_judge(tmp_path: Path) -> None:
    check_content(put(tmp_path / "model.xml", b"<?xml version='1.0'?>"))
    check_content(put(tmp_path / "model.onnx", b"no model"))
