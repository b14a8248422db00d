"""`kushi export` as far as it goes without PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from runners.cli import main
from runners.errors import ConfigInvalid, InvalidInput, Unsupported
from runners.export import Input, export
from runners.export.configuration import check_batching, configuration
from runners.export.place import Place, choose, stage
from runners.repository.config import parse
from runners.repository.files import is_within
from runners.repository.tensors import TensorInfo
from runners.repository.validate import check_tensors

if TYPE_CHECKING:
    from pathlib import Path

WITHOUT_TORCH = pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed here")


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    try:
        code = main(["export", *arguments])
    except SystemExit as error:
        code = int(error.code or 0)
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("image:FP32:3,224,224", Input("image", "FP32", (3, 224, 224))),
        ("ids:INT64:-1", Input("ids", "INT64", (-1,))),
        ("label:INT32", Input("label", "INT32", ())),
        ("label:INT32:", Input("label", "INT32", ())),
    ],
)
def test_an_input_is_stated_in_one_word(text: str, expected: Input) -> None:
    assert Input.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image", "input 'image': expected NAME:DATATYPE:DIMS, as in image:FP32:3,224,224"),
        (":FP32:1", "input ':FP32:1': expected NAME:DATATYPE:DIMS"),
        ("a:FP32:1:2", "input 'a:FP32:1:2': expected NAME:DATATYPE:DIMS"),
        ("a:FP32:3x4", "input 'a:FP32:3x4': expected NAME:DATATYPE:DIMS"),
        ("a:float:3", "input 'a': 'float' is no data type, expected one as FP32 or INT64"),
        ("a:STRING:3", "input 'a': 'STRING' is no data type, expected one as FP32 or INT64"),
        ("a:INVALID:3", "input 'a': 'INVALID' is no data type, expected one as FP32 or INT64"),
        ("a:BYTES:3", "input 'a': PyTorch has no tensors of strings to export"),
        ("a:FP32:3,0", "input 'a': dimensions are at least 1, or -1 for one that varies, got [3, 0]"),
        ("a:FP32:-2", "input 'a': dimensions are at least 1, or -1 for one that varies, got [-2]"),
    ],
)
def test_a_wrong_input_is_refused_with_what_is_expected(text: str, message: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        Input.parse(text)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: SOURCE, --output"),
        (["m.pt"], "the following arguments are required: --output"),
        (["m.pt", "--output=r/m", "--max-batch-size=x"], "argument --max-batch-size: expected an integer, got 'x'"),
        (["m.pt", "--output=r/m", "--max-batch=4"], "unrecognized arguments: --max-batch=4"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_two(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, error = refused(arguments, capsys)
    assert code == 2
    assert error.startswith("kushi")
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--version=first"], "--version: expected a number from 1 or next, got 'first'"),
        (["--version=0"], "version 0: versions of models are numbers from 1"),
        (["--max-batch-size=-1"], "maximum batch size: expected 0 or more, got -1"),
        (["--input=image"], "input 'image': expected NAME:DATATYPE:DIMS"),
    ],
)
def test_a_value_that_cannot_be_right_is_refused_before_anything_happens(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.pt").touch()
    code, error = refused([str(tmp_path / "m.pt"), f"--output={tmp_path / 'm'}", *arguments], capsys)
    assert (code, [path.name for path in tmp_path.iterdir()]) == (1, ["m.pt"])
    assert error.startswith(f"kushi export: error: {message}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.pt"], "'none.pt': there is no such file"),
        (["none.onnx", "--to=tensorrt"], "'none.onnx': there is no such file"),
        (
            ["none.onnx"],
            "'none.onnx' is an ONNX file: --to tensorrt makes a plan of it, and 'kushi optimize' its other",
        ),
    ],
)
def test_a_source_that_cannot_be_one_is_refused_before_what_is_missing_here(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, error = refused([*arguments, f"--output={tmp_path / 'm'}"], capsys)
    assert code == 1
    assert error.startswith(f"kushi export: error: {message}")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("no_such_module:make", "'no_such_module:make': ModuleNotFoundError: No module named 'no_such_module'"),
        (":make", "':make': ValueError: Empty module name"),
        ("json:nothing", "'json:nothing': 'json' has no 'nothing'"),
        ("platform:machine", "'platform:machine' makes str, expected a torch.nn.Module"),
    ],
)
def test_a_callable_that_makes_no_module_is_refused(
    source: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    code, error = refused([source, f"--output={tmp_path / 'm'}"], capsys)
    assert (code, error) == (1, f"kushi export: error: {message}\n")


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("def make(:", "SyntaxError: invalid syntax (their_code.py, line 1)"),
        ("from json import nothing", "ImportError: cannot import name 'nothing' from 'json'"),
        ("def make():\n    raise KeyError('weights')", "KeyError: 'weights'"),
        ("def make(size): ...", "TypeError: make() missing 1 required positional argument: 'size'"),
        ("raise SystemExit(0)", "SystemExit: 0"),
    ],
)
def test_code_that_fails_is_named_with_its_error(
    code: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "their_code", raising=False)
    (tmp_path / "their_code.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    exit_code, error = refused(["their_code:make", f"--output={tmp_path / 'm'}"], capsys)
    assert exit_code == 1
    assert error.startswith(f"kushi export: error: 'their_code:make': {problem}")
    assert error.count("\n") == 1
    assert not (tmp_path / "m").exists()


@WITHOUT_TORCH
def test_without_pytorch_the_error_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r'export needs torch.*, not found here: pip install "kushi\[export\]"'):
        export(tmp_path / "model.pt", tmp_path / "m")


def test_the_command_is_there_without_pytorch() -> None:
    program = (
        "import sys\nfrom runners.cli import main\n"
        "try:\n    main(['export', '--help'])\nexcept SystemExit:\n    pass\n"
        "sys.exit(bool({'torch', 'onnx', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "kushi export model.pt --output model_repository/resnet --input image:FP32:3,224,224" in done.stdout
    for flag in ("--input", "--output-name", "--max-batch-size", "--version", "--force", "--opset", "--atol", "--rtol"):
        assert f"\n  {flag} " in done.stdout


def written(directory: Path, version: int) -> None:
    (directory / str(version)).mkdir(parents=True)


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (("--precision", "fp16"), "--precision is for --to tensorrt"),
        (("--samples", "rows.npz"), "--samples is for --to tensorrt"),
        (("--min", "x:1x3"), "--min is for --to tensorrt"),
        (("--opt", "x:1x3"), "--opt is for --to tensorrt"),
        (("--max", "x:1x3"), "--max is for --to tensorrt"),
        (("--timing-cache", "file"), "--timing-cache is for --to tensorrt"),
        (("--gpu", "1"), "--gpu is for --to tensorrt"),
        (("--workspace", "64"), "--workspace is for --to tensorrt"),
        (("--optimization-level", "3"), "--optimization-level is for --to tensorrt"),
        (("--version-compatible",), "--version-compatible is for --to tensorrt"),
        (("--hardware-compatible",), "--hardware-compatible is for --to tensorrt"),
        (("--no-tf32",), "--no-tf32 is for --to tensorrt"),
        (("--with-onnx",), "--with-onnx is for --to tensorrt"),
        (("--compute-capabilities", "8.9"), "--compute-capabilities is for --to tensorrt-rtx"),
    ],
)
def test_flags_of_plans_are_refused_where_there_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], error: str
) -> None:
    code, text = refused(["model.pt", "--output", str(tmp_path / "m"), *flags], capsys)
    assert code == 1
    assert error in text


def test_versions_are_numbered_from_one_and_replaced_only_by_force(tmp_path: Path) -> None:
    model = tmp_path / "m"
    assert choose(model, 1, force=False) == choose(model, "next", force=False) == Place(model, 1)
    written(model, 1)
    written(model, 10)
    assert choose(model, 2, force=False).version == 2
    assert choose(model, "next", force=False).version == 11
    assert choose(model, 10, force=True).version == 10
    with pytest.raises(InvalidInput, match="/m/1' exists: --force replaces it, --version next takes 11"):
        choose(model, 1, force=False)


def test_a_place_that_is_no_model_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "digits", 1)
    with pytest.raises(ConfigInvalid, match=r"holds models, as 'digits': expected '.*/NAME'"):
        choose(tmp_path, 1, force=False)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigInvalid, match="is a file, expected the directory of a model"):
        choose(tmp_path / "file", 1, force=False)
    with pytest.raises(ConfigInvalid, match="path traversal"):
        choose(tmp_path / "..", 1, force=False)


def fill(staged: Place, content: str) -> None:
    (staged.files / "model.onnx").write_text(content)
    if not staged.config.exists():
        staged.config.write_text(content)


def test_a_model_comes_into_the_repository_whole(tmp_path: Path) -> None:
    place = Place(tmp_path / "new" / "repository" / "m", 1)
    with stage(place) as staged:
        fill(staged, "first")
        assert not (tmp_path / "new").exists()
    assert (place.files / "model.onnx").read_text() == place.config.read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_a_version_is_replaced_and_a_configuration_stays(tmp_path: Path) -> None:
    place = Place(tmp_path / "m", 1)
    for content in ("first", "second"):
        with stage(place) as staged:
            fill(staged, content)
    with stage(Place(place.directory, 2)) as staged:
        assert staged.config.read_text() == "first"
        fill(staged, "third")
    assert {path.name for path in place.directory.iterdir()} == {"1", "2", "config.pbtxt"}
    assert (place.files / "model.onnx").read_text() == "second"
    assert place.config.read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_files_beside_the_versions_are_seen_and_stay_as_they_are(tmp_path: Path) -> None:
    outside, model = tmp_path / "outside.txt", tmp_path / "repository" / "m"
    outside.write_text("outside")
    for folder in ("1", "configs", "files", "warmup"):
        (model / folder).mkdir(parents=True)
    for file in ("1/labels.txt", "config.pbtxt", "configs/other.pbtxt", "files/numbers", "labels.txt", "replaced"):
        (model / file).write_text(file)
    os.mkfifo(model / "pipe")
    links = {
        "again": "files/numbers",
        "also": "files",
        "both": str(model / "files/numbers"),
        "itself": ".",
        "nowhere": "gone",
        "of_a_version": "1/labels.txt",
        "outside": "../../outside.txt",
        "warmup/data": "../files/numbers",
    }
    for name, target in links.items():
        (model / name).symlink_to(target)
    before = listed(model)
    with stage(Place(model, 1)) as staged:
        names = {path.name for path in staged.directory.iterdir()}
        assert names == {path.name for path in model.iterdir()}
        assert list(staged.files.iterdir()) == []
        for name, content in (
            ("again", "files/numbers"),
            ("also/numbers", "files/numbers"),
            ("both", "files/numbers"),
            ("config.pbtxt", "config.pbtxt"),
            ("configs/other.pbtxt", "configs/other.pbtxt"),
            ("itself/labels.txt", "labels.txt"),
            ("labels.txt", "labels.txt"),
            ("of_a_version", "1/labels.txt"),
            ("warmup/data", "files/numbers"),
        ):
            assert (staged.directory / name).read_text() == content
            assert is_within(staged.directory / name, staged.directory)
        assert not is_within(staged.directory / "outside", staged.directory)
        assert (staged.directory / "outside").read_text() == "outside"
        assert (staged.directory / "pipe").is_fifo()
        assert not (staged.directory / "nowhere").exists()
        (staged.directory / "labels.txt").write_text("changed")
        fill(staged, "new")
    assert (model / "1/model.onnx").read_text() == "new"
    del before["1/labels.txt"]
    assert listed(model) == {**before, "1/model.onnx": "new"}
    assert outside.read_text() == "outside"
    assert [path.name for path in model.parent.iterdir()] == ["m"]


def listed(directory: Path) -> dict[str, str]:
    """Files with what is in them, links with where they lead"""
    return {
        str(path.relative_to(directory)): str(path.readlink())
        if path.is_symlink()
        else path.read_text()
        if path.is_file()
        else ""
        for path in directory.rglob("*")
    }


def test_what_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    place = Place(tmp_path / "m", 1)

    def fail() -> None:
        with stage(place) as staged:
            fill(staged, "half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_the_configuration_says_what_the_tensors_are() -> None:
    inputs = [TensorInfo("image", "FP32", (-1, 3, 224, 224)), TensorInfo('the "label"', "INT64", (-1,))]
    config = parse(configuration("net", 64, inputs, [TensorInfo("words", "BYTES", (-1, -1))]), "text")
    config.platform = "onnxruntime_onnx"
    check_tensors(config)
    assert (config.name, config.max_batch_size, config.HasField("dynamic_batching")) == ("net", 64, True)
    assert [(t.name, list(t.dims), t.HasField("reshape")) for t in config.input] == [
        ("image", [3, 224, 224], False),
        ('the "label"', [1], True),
    ]
    assert [(t.name, list(t.dims)) for t in config.output] == [("words", [-1])]


@pytest.mark.parametrize("most", [0, 1])
def test_a_model_without_batches_is_not_batched(most: int) -> None:
    tensors = [TensorInfo("x", "FP32", (-1, 4))]
    config = parse(configuration("net", most, tensors, tensors), "text")
    assert (config.max_batch_size, config.HasField("dynamic_batching")) == (most, False)
    assert list(config.input[0].dims) == ([-1, 4], [4])[most]


@pytest.mark.parametrize("dims", [(), (2, 4)])
def test_a_tensor_without_a_batch_dimension_is_refused(dims: tuple[int, ...]) -> None:
    with pytest.raises(Unsupported, match="expected the batch as its first dimension"):
        check_batching([TensorInfo("x", "FP32", dims)])
