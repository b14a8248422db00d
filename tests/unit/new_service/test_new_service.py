"""What `kushi new` makes of a name and of a model"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from runners.errors import InvalidInput, Unsupported
from runners.new_service import arrays, pictures
from runners.new_service.folder import Names, Written, new_folder
from runners.new_service.model import Described, Values
from runners.new_service.reader import FILES
from tests.bentoml_internals import IODescriptor
from tests.serving import ROOT

NAMES = Names(Path("some_service"))


def model(*inputs: Values, outputs: tuple[Values, ...] = (Values("scores", "FP32", (-1, 10)),)) -> Described:
    return Described("m", inputs, outputs)


def of_arrays(*inputs: Values) -> Written:
    return arrays.written(model(*inputs), NAMES)


def parameters(written: Written) -> dict[str, str]:
    """Of the endpoint, as Python reads it, with their types"""
    tree = ast.parse(written.files["service.py"])
    (endpoint,) = (node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef))
    return {each.arg: ast.unparse(each.annotation) for each in endpoint.args.args if each.annotation}


# --- names ---


@pytest.mark.parametrize(
    ("folder", "service", "name"),
    [
        ("my_service", "MyService", "my_service"),
        ("a/b/résumé/resnet-50.v2", "Resnet50V2", "resnet_50_v2"),
        ("path", "PathService", "path"),
        ("none", "NoneService", "none"),
        ("models", "ModelsService", "models"),
    ],
)
def test_a_service_is_called_as_its_folder(folder: str, service: str, name: str) -> None:
    names = Names(Path(folder))
    assert (names.service, names.name) == (service, name)


@pytest.mark.parametrize("folder", ["3d", "été", "_", "/", "x" * 64])
def test_a_folder_that_gives_no_name_is_refused(folder: str) -> None:
    with pytest.raises(InvalidInput, match="expected a name of"):
        Names(Path(folder))


# --- the folder ---


def test_a_folder_has_all_files_or_none(tmp_path: Path) -> None:
    new, empty = tmp_path / "new", tmp_path / "empty"
    empty.mkdir()
    for folder in (new, empty):
        with pytest.raises(ZeroDivisionError), new_folder(folder) as made:
            (made / f"{1 // len([*made.iterdir()])}").touch()
        assert [*tmp_path.rglob("*")] == [empty]
    for folder in (new, empty):
        with new_folder(folder) as made:
            (made / "service.py").touch()
        assert [path.name for path in folder.iterdir()] == ["service.py"]


def test_what_is_there_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path, tmp_path / "file"):
        with pytest.raises(InvalidInput, match="is there and not empty"), new_folder(folder):
            pytest.fail("it begins to write")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(InvalidInput, match=r"'\S*/file/new' cannot be written: File exists"),
        new_folder(tmp_path / "file/new"),
    ):
        pytest.fail("it begins to write")


# --- pictures ---


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((-1, 3, 224, 320), ("images.decode_rgb", "SIZE = 320, 224", "small.transpose(2, 0, 1)[None]")),
        ((1, 224, 320, 3), ("images.decode_rgb", "SIZE = 320, 224", "small[None]")),
        ((-1, 1, 28, 28), ("images.decode,", "SIZE = 28, 28", "small[None, None]")),
        ((-1, 28, 28, 1), ("images.decode,", "SIZE = 28, 28", "small[None, :, :, None]")),
    ],
)
def test_a_model_of_pictures_gets_its_sizes(shape: tuple[int, ...], expected: tuple[str, ...]) -> None:
    written = pictures.written(model(Values("x", "FP32", shape)), NAMES, is_sample=False)
    assert written is not None
    text = "".join(written.files.values())
    assert [each for each in expected if each not in text] == []
    for name, program in written.files.items():
        ast.parse(program, name)


@pytest.mark.parametrize(
    "other",
    [
        model(Values("x", "FP32", (-1, 3, -1, -1))),
        model(Values("x", "FP32", (-1, 4, 8, 8))),
        model(Values("x", "FP32", (2, 3, 8, 8))),
        model(Values("x", "FP16", (-1, 3, 8, 8))),
        model(Values("x", "FP32", (3, 8, 8))),
        model(Values("x", "FP32", (-1, 3, 8, 8)), Values("y", "FP32", (-1,))),
        model(Values("x", "FP32", (-1, 3, 8, 8)), outputs=(Values("boxes", "FP32", (-1, 9, 4)),)),
        model(Values("x", "FP32", (-1, 3, 8, 8)), outputs=(Values("class", "INT64", (-1, 1)),)),
        model(Values("x", "FP32", (-1, 3, 8, 8)), outputs=(Values("a", "FP32", (-1, 9)), Values("b", "FP32", (-1, 9)))),
        model(),
    ],
)
def test_other_models_get_no_service_of_pictures(other: Described) -> None:
    assert pictures.written(other, NAMES, is_sample=False) is None
    assert arrays.written(other, NAMES).files


# --- arrays ---


def test_inputs_have_names_that_python_takes() -> None:
    names = ("input.1", "input_1", "class", "self", "arrays", "model_config", "3", "ж", "")
    written = of_arrays(*(Values(name, "INT64", (-1, 2)) for name in names))
    expected = ["input_1", "input_1_", "class_", "self_", "arrays_", "the_model_config", "x_3", "x", "x_"]
    assert parameters(written) == dict.fromkeys(expected, "Int64s")
    assert 'Int64s = Annotated[np.ndarray, DType("int64")]\n' in written.files["service.py"]


def test_texts_are_lists_and_arrays_have_the_types_of_numpy() -> None:
    written = of_arrays(Values("a", "BYTES", (-1, 1)), Values("b", "BOOL", (-1,)), Values("c", "FP16", (-1, 3)))
    assert parameters(written) == {"a": "list[Any]", "b": "Bools", "c": "Float16s"}
    assert 'Bools = Annotated[np.ndarray, DType("bool_")]' in written.files["service.py"]
    assert """-d '{"a": [["text"]], "b": [0], "c": [[0, 0, 0]]}'""" in written.ask


def test_no_input_has_a_name_that_bentoml_gives_the_fields_of_a_request() -> None:
    taken = [name for name in dir(IODescriptor) if not name.startswith("_")]
    assert not {*parameters(of_arrays(*(Values(name, "FP32", (-1,)) for name in taken)))} & {*taken}


def test_inputs_that_may_be_left_out_come_last() -> None:
    written = of_arrays(Values("a", "FP32", (-1,), is_optional=True), Values("b", "BYTES", (-1,)))
    assert parameters(written) == {"b": "list[Any]", "a": "Float32s | None"}
    assert "a=" not in written.files["test_service.py"]


def test_a_long_input_is_not_written_into_a_command() -> None:
    assert "test_service.py" in of_arrays(Values("x", "FP32", (-1, 17))).ask


def test_an_input_without_a_form_in_json_is_named() -> None:
    with pytest.raises(Unsupported, match="the input 'x' is of BF16"):
        of_arrays(Values("x", "BF16", (-1, 2)))


@pytest.mark.parametrize("odd", ['"""', "a\nb", "'); exit() #", "\\", "${x}", "é\N{LINE SEPARATOR}"])
def test_names_may_hold_anything(odd: str) -> None:
    named = Described(odd, (Values(odd, "FP32", (-1, 3, 8, 8)),), (Values(odd, "FP32", (-1, 9)),))
    shown = pictures.written(named, NAMES, is_sample=False)
    assert shown is not None
    for written in (shown, arrays.written(named, NAMES)):
        tree = ast.parse(written.files["service.py"])
        texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
        assert texts.count(odd) >= 2
        ast.parse(written.files["test_service.py"])


# --- the reader ---


def test_the_wheel_has_the_files_of_the_reader() -> None:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]
    folder = "kushi/new_service/reader_files"
    assert built["wheel"]["force-include"] == {name: f"{folder}/{name}" for name in FILES}
    assert {*built["sdist"]["only-include"]} == {"README.md", "runners", *FILES}
    # nothing of the repository is forgotten, but for what is taken out of packages
    ignored = {line[1:] for line in (ROOT / ".gitignore").read_text().splitlines() if line.startswith("/model_repo")}
    named = tuple(FILES)
    for path in (ROOT / "model_repository").rglob("*"):
        name = str(path.relative_to(ROOT))
        if path.is_file() and name not in ignored and "__pycache__" not in name:
            assert any(re.match(rf"{re.escape(each)}(/|$)", name) for each in named), name
