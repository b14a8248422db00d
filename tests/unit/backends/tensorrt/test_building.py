"""What a plan is built with, where it is kept, and who wrote one."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import onnx
import pytest
from hypothesis import given as examples
from hypothesis import strategies

from runners.backends.tensorrt.header import read_header
from runners.backends.tensorrt.kept import content_of, files_of, kept_name
from runners.backends.tensorrt.plan import Range
from runners.backends.tensorrt.recipe import Recipe, profile_of, values_of
from runners.backends.tensorrt.shapes import read_shapes, shapes_text
from runners.backends.tensorrt.staging import ALIGNMENT, lay_out
from runners.errors import ConfigInvalid

if TYPE_CHECKING:
    from pathlib import Path

RECIPE = Recipe(least={"X": (1, 4)}, best={"X": (2, 8)}, most={"X": (4, 16)}, batch=(1, 2, 4), optimization_level=5)


def test_a_recipe_is_the_same_on_the_other_side() -> None:
    assert Recipe.of_json(RECIPE.to_json()) == RECIPE
    assert Recipe.of_json(Recipe().to_json()) == Recipe()


def test_stated_shapes_are_the_profile() -> None:
    assert profile_of(RECIPE, {"X": (-1, -1)}) == {"X": Range((1, 4), (2, 8), (4, 16))}


def test_without_any_the_batch_is_that_of_the_configuration() -> None:
    rows = Recipe(batch=(1, 8, 16))
    assert profile_of(rows, {"X": (-1, 3), "Y": (-1,), "Z": (2, 2)}) == {
        "X": Range((1, 3), (8, 3), (16, 3)),
        "Y": Range((1,), (8,), (16,)),
    }


def test_one_stated_shape_stands_for_the_others() -> None:
    assert profile_of(Recipe(best={"X": (8, 3)}), {"X": (-1, 3)}) == {"X": Range((8, 3), (8, 3), (8, 3))}


@pytest.mark.parametrize(
    ("recipe", "shape", "error"),
    [
        (Recipe(batch=(1, 2, 4)), (-1, -1), r"state its min, opt and max shapes, as X:8x8"),
        (Recipe(), (-1, 3), r"nothing says how large"),
        (Recipe(most={"Z": (1, 3)}), (-1, 3), "the max shapes name the input 'Z', the model has X"),
        (Recipe(most={"X": (1, 4)}), (-1, 3), r"has the shape \[-1, 3\], which \[1, 4\] does not fit"),
        (Recipe(least={"X": (4, 3)}, most={"X": (2, 3)}), (-1, 3), "are not in order"),
    ],
)
def test_a_recipe_that_does_not_fit_the_network_is_refused(recipe: Recipe, shape: tuple[int, ...], error: str) -> None:
    with pytest.raises(ConfigInvalid, match=error):
        profile_of(recipe, {"X": shape})


def test_values_of_shape_tensors_are_stated_where_others_have_shapes() -> None:
    recipe = Recipe(least={"S": (1, 1), "N": (1,)}, most={"S": (4, 8), "N": (9,)})
    assert values_of(recipe, {"S": (2,), "N": ()}) == {
        "S": Range((1, 1), (4, 8), (4, 8)),
        "N": Range((1,), (9,), (9,)),
    }
    assert profile_of(recipe, {"X": (1, 3)}, known={"X": (), "S": (), "N": ()}) == {}


@pytest.mark.parametrize(
    ("recipe", "error"),
    [
        (Recipe(), "is a shape tensor, and nothing says which values it takes.*as S:64x64"),
        (Recipe(best={"S": (1,)}), r"expected 2 values, got \[1\]"),
        (Recipe(least={"S": (4, 4)}, most={"S": (2, 8)}), "values of input 'S' are not in order"),
    ],
)
def test_values_that_do_not_fit_a_shape_tensor_are_refused(recipe: Recipe, error: str) -> None:
    with pytest.raises(ConfigInvalid, match=error):
        values_of(recipe, {"S": (2,)})


def test_a_shape_tensor_of_open_length_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigInvalid, match=r"of the shape \[-1\].*its length must be fixed"):
        values_of(Recipe(best={"S": (64, 64)}), {"S": (-1,)})


def test_shapes_are_read_as_trtexec_reads_them() -> None:
    assert read_shapes("X:1x3x224x224, a:b:7", "it") == {"X": (1, 3, 224, 224), "a:b": (7,)}
    assert read_shapes("", "it") == {}
    assert shapes_text({"X": (1, 3), "a:b": (7,)}) == "X:1x3,a:b:7"


@pytest.mark.parametrize("text", ["X", "X:", ":1x2", "X:1xa", "X:-1x2", "X:1,X:2"])
def test_shapes_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="it: expected NAME:DIMS"):
        read_shapes(text, "it")


def write_naming(source: Path, weights: str) -> None:
    """A graph whose weights are in this file"""
    tensor = onnx.TensorProto(name="W", data_type=onnx.TensorProto.FLOAT, dims=[1])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=weights)
    model = onnx.helper.make_model(onnx.helper.make_graph([], "it", [], [], [tensor]))
    source.write_bytes(model.SerializeToString())


def test_files_are_those_that_hold_weights_alone(tmp_path: Path) -> None:
    source, long = tmp_path / "it", "w" * 200
    for name in ("it", "W", "location", long, "outside"):
        (tmp_path / name).write_bytes(b"1")
    write_naming(source, long)
    assert list(files_of(source)) == ["it", long]
    for outside in ("../outside", str(tmp_path / "outside"), "absent", ""):
        (tmp_path / "below").mkdir(exist_ok=True)
        write_naming(tmp_path / "below/it", outside)
        assert list(files_of(tmp_path / "below/it")) == ["it"]


def test_the_name_of_a_kept_plan_says_what_it_is_for(tmp_path: Path) -> None:
    source = tmp_path / "model.onnx"
    write_naming(source, "weights.bin")
    (tmp_path / "weights.bin").write_bytes(b"1")
    names = set()

    def name(recipe: Recipe = RECIPE, version: str = "10.14.1", gpu: str = "H100", compute: str = "9.0") -> str:
        return kept_name(
            content_of(source), recipe, version=map(int, version.split(".")), gpu=gpu, compute_capability=compute
        )

    first = name()
    assert name() == first
    names.update({first, name(Recipe()), name(version="10.14.2"), name(gpu="A100"), name(compute="8.0")})
    (tmp_path / "weights.bin").write_bytes(b"2")
    names.add(name())
    (tmp_path / "model.plan").write_bytes(b"it does not matter")
    names.add(name())
    assert len(names) == 6


def test_weights_in_a_folder_below_are_part_of_the_content(tmp_path: Path) -> None:
    source, weights = tmp_path / "model.onnx", tmp_path / "weights/all.bin"
    weights.parent.mkdir()
    write_naming(source, "weights/all.bin")
    weights.write_bytes(b"1")
    before = content_of(source)
    weights.write_bytes(b"2")
    assert content_of(source) != before


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    source = tmp_path / "model.onnx"
    source.touch()
    with pytest.raises(ConfigInvalid, match="is empty, expected an ONNX model"):
        content_of(source)


def test_the_head_of_a_plan_says_who_wrote_it(tmp_path: Path) -> None:
    path = tmp_path / "model.plan"
    path.write_bytes(struct.pack("<4sI16x4B", b"ftrt", 0, 10, 3, 0, 26) + b"more")
    assert read_header(path).written_by == "TensorRT 10.3.0.26"
    path.write_bytes(struct.pack("<4sI16x4B", b"vtrt", 0, 1, 7, 1, 116) + b"more")
    assert read_header(path).written_by == "TensorRT-RTX 1.7.1.116"
    assert read_header(path).is_rtx
    path.write_bytes(struct.pack("<4sI16x4B", b"ftrt", 7, 10, 3, 0, 26))
    assert read_header(path).written_by == "another TensorRT"


@pytest.mark.parametrize("content", [b"", b"ftrt", b"\x08\x07" + bytes(60)])
def test_what_is_no_plan_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.plan"
    path.write_bytes(content)
    with pytest.raises(ConfigInvalid, match="is not a TensorRT plan"):
        read_header(path)


@examples(strategies.lists(strategies.integers(0, 5000), max_size=8))
def test_tensors_lie_one_behind_the_other_and_do_not_touch(sizes: list[int]) -> None:
    layout = lay_out((str(index), size) for index, size in enumerate(sizes))
    end = 0
    for index, size in enumerate(sizes):
        offset = layout.offsets[str(index)]
        assert offset == end
        assert offset % ALIGNMENT == 0
        end = offset + max(size, 1) + -max(size, 1) % ALIGNMENT
    assert layout.total_bytes == end
