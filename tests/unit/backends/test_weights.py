"""Weights beside a model: regular files in its directory alone, whatever the file of the model says."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from runners.backends.openvino.backend import OpenVinoBackend
from runners.backends.weights import check_weights
from runners.errors import ConfigInvalid
from tests.hostile_models import with_weights_in

if TYPE_CHECKING:
    from pathlib import Path

ELSEWHERE = "is not in the directory of the model"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The directory of a model"""
    folder = tmp_path / "m"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(4096))
    return folder


def onnx(model: Path, weights: str) -> Path:
    path = model / "model.onnx"
    path.write_bytes(with_weights_in(weights).SerializeToString())
    return path


def test_files_in_the_directory_are_taken(model: Path) -> None:
    (model / "below").mkdir()
    for name in ("weights", "below/weights"):
        (model / name).write_bytes(bytes(4096))
        check_weights(onnx(model, name))
    (model / "linked").symlink_to("weights")
    check_weights(onnx(model, "linked"))


@pytest.mark.parametrize(
    "name",
    ["../secret", "/etc/hostname", "below/../../secret", "linked", "folder/secret"],
)
def test_what_lies_elsewhere_is_refused(model: Path, name: str) -> None:
    (model / "linked").symlink_to("../secret")
    (model / "folder").symlink_to("..")
    with pytest.raises(ConfigInvalid, match=ELSEWHERE):
        check_weights(onnx(model, name))


@pytest.mark.parametrize("name", ["*/_ORT_MEM_ADDR_/*", "nothing", "", "a\0b"])
def test_what_is_no_file_is_refused(model: Path, name: str) -> None:
    with pytest.raises(ConfigInvalid, match="external data"):
        check_weights(onnx(model, name))


def test_a_pipe_is_refused_and_not_waited_for(model: Path) -> None:
    os.mkfifo(model / "weights")
    with pytest.raises(ConfigInvalid, match="is a pipe, expected a regular file"):
        check_weights(onnx(model, "weights"))


@pytest.mark.parametrize("name", ["model.xml", "ir.onnx", "model"])
def test_what_a_backend_looks_for_beside_it_is_there_or_not_there(model: Path, name: str) -> None:
    path = model / name
    path.write_text("<net/>")
    beside = OpenVinoBackend.weights_beside(OpenVinoBackend.__new__(OpenVinoBackend), path)
    weights = path.with_suffix(".bin")
    assert weights.name in beside
    check_weights(path, beside)
    weights.symlink_to("../secret")
    with pytest.raises(ConfigInvalid, match=ELSEWHERE):
        check_weights(path, beside)
    weights.unlink()
    os.mkfifo(weights)
    with pytest.raises(ConfigInvalid, match="is a pipe"):
        check_weights(path, beside)
    weights.unlink()
    weights.write_bytes(b"")
    check_weights(path, beside)


def test_a_model_of_onnx_is_looked_into_whatever_its_name(model: Path) -> None:
    path = onnx(model, "../secret")
    for name in ("model.xml", "model.bin"):
        other = path.rename(model / name)
        with pytest.raises(ConfigInvalid, match=ELSEWHERE):
            check_weights(other)
        path = other


def test_a_cache_may_keep_contents_apart_from_names(model: Path, tmp_path: Path) -> None:
    contents = tmp_path / "contents"
    contents.mkdir()
    (contents / "weights").write_bytes(bytes(4096))
    onnx(model, "data").rename(contents / "model")
    (model / "model.onnx").symlink_to("../contents/model")
    (model / "data").symlink_to("../contents/weights")
    check_weights(model / "model.onnx")
    (model / "data").unlink()
    (model / "data").symlink_to("../secret")
    with pytest.raises(ConfigInvalid, match=ELSEWHERE):
        check_weights(model / "model.onnx")


def test_so_do_those_of_a_saved_model(model: Path) -> None:
    variables = model / "variables"
    variables.mkdir()
    (model / "saved_model.pb").write_bytes(b"")
    index = variables / "variables.index"
    os.mkfifo(index)
    with pytest.raises(ConfigInvalid, match="is a pipe"):
        check_weights(model)
    index.unlink()
    index.symlink_to("../../secret")
    with pytest.raises(ConfigInvalid, match=ELSEWHERE):
        check_weights(model)
    index.unlink()
    index.write_bytes(b"")
    check_weights(model)
    (model / "assets").symlink_to("..")
    with pytest.raises(ConfigInvalid, match=ELSEWHERE):
        check_weights(model)


def test_other_files_have_none(model: Path) -> None:
    path = model / "model.pt"
    path.write_bytes(b"PK\x03\x04" + bytes(range(256)) * 100)
    check_weights(path)
    check_weights(model / "missing")


@pytest.mark.parametrize("name", ["*/_ORT_MEM_ADDR_/*", "x:*/_ORT_MEM_ADDR_/*", "./*/_ORT_MEM_ADDR_/*"])
def test_an_address_is_none_whatever_files_there_are(model: Path, name: str) -> None:
    place = model / name
    place.parent.mkdir(parents=True)
    place.write_bytes(bytes(4096))
    with pytest.raises(ConfigInvalid, match="is an address in memory"):
        check_weights(onnx(model, name))


@pytest.mark.parametrize("name", ["a:weights", ".weights", "..weights", "a:./weights"])
def test_the_file_that_openvino_makes_of_a_name_is_looked_at_too(model: Path, name: str) -> None:
    (model / name).parent.mkdir(exist_ok=True)
    (model / name).write_bytes(bytes(4096))
    check_weights(onnx(model, name))
    (model / "weights").symlink_to("../secret")
    with pytest.raises(ConfigInvalid, match=ELSEWHERE):
        check_weights(onnx(model, name))


def test_a_name_that_is_no_text_is_looked_at_as_it_is(model: Path) -> None:
    path = onnx(model, "wX")
    path.write_bytes(path.read_bytes().replace(b"wX", b"w\xff"))
    (model / "w\ufffd").write_bytes(bytes(4096))
    with pytest.raises(ConfigInvalid, match="external data"):
        check_weights(path)
    (model / os.fsdecode(b"w\xff")).symlink_to("../secret")
    with pytest.raises(ConfigInvalid, match=ELSEWHERE):
        check_weights(path)
