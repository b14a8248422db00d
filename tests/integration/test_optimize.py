"""Other forms of an ONNX model, compared with it and written"""

import logging
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from runners import Engine
from runners.cli import main
from runners.errors import ConfigInvalid, InvalidInput, Unsupported
from runners.export import onnx_weights
from runners.optimize import FORMS, ORIGINAL, optimize
from tests import models
from tests.shared_memory import DIRECTORY
from tests.small_service import MODELS

DIGITS = MODELS / "digits/1/model.onnx"
ROWS = 48
NAMING_FILES = """
    model_warmup {
        name: "row" batch_size: 1
        inputs { key: "INPUT0" value { data_type: TYPE_FP32 dims: [ 2 ] input_data_file: "row" } }
    }
    parameters { key: "kushi.alternatives" value { string_value: "careful" } }
    parameters { key: "kushi.samples" value { string_value: "rows.npz" } }
"""


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("samples") / "rows.npz"
    inputs = onnx.load(DIGITS).graph.input
    assert len(inputs) == 1
    dims = [dim.dim_value for dim in inputs[0].type.tensor_type.shape.dim][1:]
    arrays: dict[str, Any] = {inputs[0].name: np.random.default_rng(7).random((ROWS, *dims), np.float32)}
    np.savez(path, **arrays)
    return path


def test_every_form_is_made_and_answers_nearly_as_the_original(samples: Path) -> None:
    optimized = optimize(DIGITS, samples=samples)
    by_form = {result.form: result for result in optimized.results}
    assert list(by_form) == [ORIGINAL, *FORMS]
    assert (optimized.rows, optimized.drawn, optimized.path) == (ROWS, False, None)
    assert not [result.failure for result in optimized.results if result.failure]
    assert all(result.milliseconds > 0 for result in optimized.results)
    size = by_form[ORIGINAL].size
    assert by_form["simplified"].relative_difference < 1e-5
    assert by_form["openvino"].relative_difference < 1e-4
    assert 0 < by_form["fp16"].relative_difference < 1e-2
    assert by_form["fp16"].size < 0.6 * size
    for form in ("int8-dynamic", "int8-static"):
        assert by_form[form].size < 0.4 * size
        assert 0 < by_form[form].relative_difference < 0.2
        agreement, cosine = by_form[form].agreement, by_form[form].cosine
        assert agreement
        assert agreement > 0.7
        assert cosine
        assert 0.9 < cosine < 1


@pytest.mark.parametrize("form", ["int8-static", "openvino"])
def test_a_form_is_written_as_a_model_that_is_served(tmp_path: Path, samples: Path, form: str) -> None:
    optimized = optimize(DIGITS, forms=[form], samples=samples, write=form, directory=tmp_path / "models/digits")
    assert optimized.path is not None
    assert optimized.path.is_file()
    with Engine(tmp_path / "models") as engine, np.load(samples) as file:
        config = engine.get_model_config("digits")
        assert config["backend"] == ("openvino" if form == "openvino" else "onnxruntime")
        assert config["max_batch_size"] == 8
        answer = engine.infer("digits", {name: file[name][:3] for name in file})
        assert all(np.isfinite(np.asarray(answer[output["name"]])).all() for output in config["output"])


def beyond_half(tmp_path: Path) -> Path:
    """Its numbers get large on the way, and small again, and a graph inside it takes one of them"""
    weights = [
        numpy_helper.from_array(np.full((2, 2), 1e3, np.float32), "W"),
        numpy_helper.from_array(np.array(1e5, np.float32), "L"),
        numpy_helper.from_array(np.array(1.0, np.float32), "one"),
        numpy_helper.from_array(np.array(True), "always"),
    ]
    inner = [
        helper.make_graph(
            [helper.make_node("Add", ["large", "one"], [name])], name, [], [models.tensor(name, "FP32", ["b", 2])]
        )
        for name in ("then", "else")
    ]
    nodes = [
        helper.make_node("MatMul", ["X", "W"], ["more"]),
        helper.make_node("MatMul", ["more", "W"], ["large"]),
        helper.make_node("If", ["always"], ["chosen"], then_branch=inner[0], else_branch=inner[1]),
        helper.make_node("Div", ["chosen", "L"], ["Y"]),
    ]
    made = models.model(nodes, [models.tensor("X", "FP32", ["b", 2])], [models.tensor("Y", "FP32", ["b", 2])], weights)
    path = tmp_path / "beyond.onnx"
    onnx.save(made, path)
    return path


def test_what_half_precision_cannot_hold_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = beyond_half(tmp_path)
    np.savez(tmp_path / "rows.npz", X=np.ones((2, 2), np.float32))
    assert main(["optimize", str(source), "--form", "fp16", "--samples", str(tmp_path / "rows.npz")]) == 0
    printed = capsys.readouterr().out
    assert "\nfp16: on the way its numbers get as large as 4.0e+06, and half precision ends at 65504" in printed


@pytest.mark.parametrize("source", ["digits", "beyond"])
def test_a_halved_model_is_a_valid_one_and_not_halved_again(tmp_path: Path, source: str) -> None:
    path = DIGITS if source == "digits" else beyond_half(tmp_path)
    written = optimize(path, forms=["fp16"], write="fp16", directory=tmp_path / "m").path
    assert written
    onnx.checker.check_model(written, full_check=True)
    again = optimize(written, forms=["fp16"]).results[-1]
    assert again.failure == "its weights are in half precision already"


@pytest.mark.parametrize(
    ("config", "form", "reason"),
    [
        ('backend: "openvino"', "fp16", "is of a model whose file is 'model.xml', and the form 'fp16' is 'model.onnx'"),
        (
            'platform: "onnxruntime_onnx"',
            "openvino",
            "'model.onnx', and the form 'openvino' is 'model.xml'",
        ),
        ("version_policy { specific { versions: 1 } }", "fp16", "has no version 2: add it there"),
    ],
)
def test_what_does_not_fit_the_configuration_is_refused_before_anything_is_made(
    tmp_path: Path, config: str, form: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "m/1").mkdir(parents=True)
    (tmp_path / "m/config.pbtxt").write_text(config)
    with caplog.at_level("INFO"), pytest.raises(ConfigInvalid, match=reason):
        optimize(DIGITS, forms=[form], write=form, directory=tmp_path / "m")
    assert "original: served" not in caplog.text


@pytest.mark.parametrize(
    ("config", "form"),
    [
        ('backend: "openvino" default_model_filename: "model.onnx"', "fp16"),
        (
            'backend: "onnxruntime" parameters { key: "kushi.alternatives" value { string_value: "openvino" } }',
            "openvino",
        ),
    ],
)
def test_a_form_is_written_where_its_file_is_asked_for_in_another_way(tmp_path: Path, config: str, form: str) -> None:
    (tmp_path / "m/1").mkdir(parents=True)
    (tmp_path / "m/1/model.onnx").write_bytes(DIGITS.read_bytes())
    (tmp_path / "m/config.pbtxt").write_text(config)
    written = optimize(DIGITS, forms=[form], write=form, directory=tmp_path / "m").path
    assert written
    assert written.parent == tmp_path / "m/2"
    with Engine(tmp_path) as engine:
        assert engine.get_model_config("m")["backend"] == "openvino"


def masked() -> onnx.ModelProto:
    """Minus infinity where a mask is 0, as in attention; branches that make a name which is also made around them"""
    weights = [
        numpy_helper.from_array(np.array(-np.inf, np.float32), "never"),
        numpy_helper.from_array(np.array(True), "always"),
    ]
    branches = [
        helper.make_graph(
            [helper.make_node("Softmax", ["kept"], ["chosen"])], name, [], [models.tensor("chosen", "FP32", ["b", 2])]
        )
        for name in ("then", "else")
    ]
    nodes = [
        helper.make_node("Where", ["MASK", "X", "never"], ["kept"]),
        helper.make_node("If", ["always"], ["chosen"], then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("Neg", ["chosen"], ["Y"]),
    ]
    inputs = [models.tensor("MASK", "BOOL", ["b", 2]), models.tensor("X", "FP32", ["b", 2])]
    return models.model(nodes, inputs, [models.tensor("Y", "FP32", ["b", 2])], weights)


def test_infinities_of_a_mask_are_no_numbers_that_got_too_large(tmp_path: Path) -> None:
    source = tmp_path / "masked.onnx"
    onnx.save(masked(), source)
    np.savez(tmp_path / "rows.npz", MASK=np.array([[True, False]]), X=np.ones((1, 2), np.float32))
    result = optimize(source, forms=["fp16"], samples=tmp_path / "rows.npz").results[-1]
    assert (result.failure, result.note) == ("", "")


def test_the_weights_of_a_large_model_are_readable_as_the_model_is(
    tmp_path: Path, samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_weights, "_SINGLE_FILE_BYTES", 100)
    optimize(DIGITS, forms=["fp16"], samples=samples, write="fp16", directory=tmp_path / "m")
    model, weights = sorted((tmp_path / "m/1").iterdir())
    assert (model.name, weights.name) == ("model.onnx", "model.onnx.data")
    assert model.stat().st_mode == weights.stat().st_mode


def test_it_becomes_the_next_version_of_a_model_whose_configuration_stays(tmp_path: Path, samples: Path) -> None:
    directory = tmp_path / "digits"
    (directory / "3").mkdir(parents=True)
    (directory / "3/model.onnx").write_bytes(DIGITS.read_bytes())
    config = 'backend: "onnxruntime" max_batch_size: 2'
    (directory / "config.pbtxt").write_text(config)
    optimized = optimize(DIGITS, forms=["fp16"], samples=samples, write="fp16", directory=directory)
    assert optimized.path == directory / "4/model.onnx"
    assert (directory / "config.pbtxt").read_text() == config
    (directory / "config.pbtxt").write_text(config + ' input { name: "none" data_type: TYPE_FP32 dims: 1 }')
    with pytest.raises(ConfigInvalid, match=r"the form 'fp16' does not fit .*config.pbtxt', nothing was written"):
        optimize(DIGITS, forms=["fp16"], samples=samples, write="fp16", directory=directory)
    assert sorted(path.name for path in directory.iterdir()) == ["3", "4", "config.pbtxt"]


def test_temporary_files_may_be_on_another_file_system(
    tmp_path: Path, samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not DIRECTORY.is_dir() or DIRECTORY.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs a second file system, in memory")
    monkeypatch.setattr(tempfile, "tempdir", str(DIRECTORY))
    optimized = optimize(DIGITS, forms=["openvino"], samples=samples, write="openvino", directory=tmp_path / "m")
    assert optimized.path == tmp_path / "m/1/model.xml"
    assert {path.name for path in optimized.path.parent.iterdir()} == {"model.bin", "model.xml"}


def test_the_configuration_that_stays_may_name_files_of_the_model(tmp_path: Path) -> None:
    model = models.identity("FP32", ("batch", 2))
    config = models.config(
        "m",
        [("INPUT0", "FP32", [2])],
        [("OUTPUT0", "FP32", [2])],
        max_batch_size=8,
        extra=NAMING_FILES,
        fields={"OUTPUT0": 'label_filename: "labels.txt"'},
    )
    directory = models.write(tmp_path / "models", "m", model, config)
    (directory / "labels.txt").write_text("left\nright\n")
    (directory / "warmup").mkdir()
    (directory / "warmup/row").write_bytes(np.ones(2, np.float32).tobytes())
    (directory / "configs").mkdir()
    (directory / "configs/careful.pbtxt").write_text(models.ONE_THREAD)
    np.savez(directory / "rows.npz", INPUT0=np.ones((3, 2), np.float32))
    before = sorted(path.relative_to(directory) for path in directory.rglob("*"))
    path = optimize(directory / "1/model.onnx", forms=[], write="simplified", directory=directory).path
    assert path == directory / "2/model.onnx"
    after = sorted(path.relative_to(directory) for path in directory.rglob("*"))
    assert after == sorted([*before, Path("2"), Path("2/model.onnx")])
    with Engine(tmp_path / "models") as engine:
        assert engine.get_model_config("m")["parameters"]["kushi.alternative"]["string_value"].startswith("careful: ")


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"other": np.zeros((2, 4), np.float32)}, "expected arrays by the names of the inputs, X, got other"),
        ({"X": np.zeros((2, 4))}, "'X' is float64, the model takes float32"),
        ({"X": np.zeros((0, 4), np.float32)}, "expected as many rows of each input, at least one"),
        ({"X": np.float32(1)}, "expected as many rows of each input, at least one"),
    ],
)
def test_samples_that_do_not_fit_are_refused(tmp_path: Path, arrays: dict[str, Any], text: str) -> None:
    model = labelled(tmp_path)
    np.savez(tmp_path / "rows.npz", **arrays)
    with pytest.raises(InvalidInput, match=re.escape(text)):
        optimize(model, forms=["fp16"], samples=tmp_path / "rows.npz")


def test_what_cannot_be_made_says_why_and_keeps_nothing_from_the_others(tmp_path: Path) -> None:
    root = logging.root
    log = root.level, root.filters[:], root.handlers[:]
    optimized = optimize(labelled(tmp_path), forms=["simplified", "openvino"])
    assert (root.level, root.filters[:], root.handlers[:]) == log
    original, simplified, openvino = optimized.results
    assert optimized.drawn
    assert not original.failure
    assert not simplified.failure
    assert simplified.agreement == 1.0
    assert "LabelEncoder" in openvino.failure
    with pytest.raises(Unsupported, match=r"'openvino' cannot be written: .*LabelEncoder"):
        optimize(labelled(tmp_path), forms=[], write="openvino", directory=tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_a_form_whose_answers_have_another_shape_fails_by_itself(tmp_path: Path) -> None:
    # in half precision 2049 is 2048, from which the samples differ
    model = models.model(
        [helper.make_node("Sub", ["X", "base"], ["rest"]), helper.make_node("NonZero", ["rest"], ["Y"])],
        [models.tensor("X", "FP32", [4])],
        [models.tensor("Y", "INT64", [1, "places"])],
        [helper.make_tensor("base", TensorProto.FLOAT, [1], [2049.0])],
    )
    onnx.save(model, tmp_path / "model.onnx")
    np.savez(tmp_path / "rows.npz", X=np.full((3, 4), 2049, np.float32))
    optimized = optimize(tmp_path / "model.onnx", forms=["simplified", "fp16"], samples=tmp_path / "rows.npz")
    assert [(result.form, result.failure) for result in optimized.results] == [
        (ORIGINAL, ""),
        ("simplified", ""),
        ("fp16", "output 'Y' has the shape [1,4], the original's [1,0]"),
    ]


@pytest.mark.parametrize(("datatype", "difference"), [("BF16", 0.25), ("BYTES", 0.0)])
def test_outputs_of_every_type_are_compared(tmp_path: Path, datatype: str, difference: float) -> None:
    # in half precision 2048.25 is 2048
    model = models.model(
        [
            helper.make_node("Sub", ["X", "base"], ["rest"]),
            helper.make_node("Cast", ["rest"], ["Y"], to=models.DATATYPES[datatype]),
        ],
        [models.tensor("X", "FP32", ["batch", 4])],
        [models.tensor("Y", datatype, ["batch", 4])],
        [helper.make_tensor("base", TensorProto.FLOAT, [4], [2048.25, 0, 0, 0])],
    )
    onnx.save(model, tmp_path / "model.onnx")
    np.savez(tmp_path / "rows.npz", X=np.array([[2048.5, 0, 0, 0]], np.float32))
    original, simplified, fp16 = optimize(
        tmp_path / "model.onnx", forms=["simplified", "fp16"], samples=tmp_path / "rows.npz"
    ).results
    assert not original.failure
    assert (simplified.failure, simplified.largest_difference, simplified.agreement) == ("", 0.0, 1.0)
    assert (fp16.failure, fp16.largest_difference) == ("", difference)
    # the largest number stays at its place
    assert fp16.agreement == (0.0 if datatype == "BYTES" else 1.0)


def test_the_command_prints_a_table(tmp_path: Path, samples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "models/digits"
    words = ["optimize", str(DIGITS), "--samples", str(samples), "--form", "simplified", "--form", "int8-static"]
    assert main([*words, "--write", "int8-static", "--output", str(directory)]) == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["form", "original", "simplified", "int8-static"]
    assert lines[4] == f"compared on {ROWS} rows of the samples"
    assert lines[5] == f"wrote {directory / '1/model.onnx'}"
    assert "int8-static: weights and activations in 8 bits" in shown.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["missing.onnx"], "'missing.onnx' is not a file"),
        ([str(DIGITS), "--form", "int4"], "form 'int4' is not known, expected simplified, fp16"),
        ([str(DIGITS), "--write", "fp16"], "--write says what is written and --output where"),
        ([str(DIGITS), "--version", "x"], "--version: expected a number from 1 or next"),
        ([__file__], "is not an ONNX model"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", *words]) == 1
    assert text in capsys.readouterr().err


def labelled(directory: Path) -> Path:
    """A model with an operator that OpenVINO does not have"""
    nodes = [
        helper.make_node("ArgMax", ["X"], ["place"], axis=1, keepdims=0),
        helper.make_node(
            "LabelEncoder", ["place"], ["Y"], domain="ai.onnx.ml", keys_int64s=[0, 1, 2, 3], values_int64s=[7, 5, 3, 1]
        ),
    ]
    graph = helper.make_graph(
        nodes,
        "labelled",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("Y", TensorProto.INT64, ["batch"])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 2)]
    path = directory / "labelled.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


def remembering(tmp_path: Path) -> Path:
    """Takes a state whose batch is its second dimension, as a network of speech, and a rate that is 8000 or more"""
    nodes = [
        helper.make_node("Add", ["X", "X"], ["Y"]),
        helper.make_node("Add", ["state", "one"], ["next"]),
        helper.make_node("Gather", ["table", "rate"], ["at"]),
    ]
    table = numpy_helper.from_array(np.zeros(16001, np.float32), "table")
    model = models.model(
        nodes,
        [
            models.tensor("X", "FP32", ["b", "n"]),
            models.tensor("state", "FP32", [2, "b", 4]),
            models.tensor("rate", "INT64", [1]),
        ],
        [
            models.tensor("Y", "FP32", ["b", "n"]),
            models.tensor("next", "FP32", [2, "b", 4]),
            models.tensor("at", "FP32", [1]),
        ],
        [table, helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])],
    )
    onnx.save(model, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_a_model_without_batches_is_asked_what_it_takes_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays: dict[str, Any] = {
        "X": np.random.default_rng(1).random((1, 9), np.float32),
        "state": np.zeros((2, 1, 4), np.float32),
        "rate": np.array([16000]),
    }
    np.savez(tmp_path / "rows.npz", **arrays)
    words = ["optimize", str(remembering(tmp_path)), "--form", "simplified", "--samples", str(tmp_path / "rows.npz")]
    assert main(words) == 0
    table = capsys.readouterr().out
    assert "compared on 1 rows of the samples" in table
    # "at" is one number, and the others are no scores
    assert re.search(r"^simplified .* 1\.0000\s+–$", table, re.MULTILINE)
    # rows of each, as for any other model
    rows: dict[str, Any] = {name: np.stack([array] * 3) for name, array in arrays.items()}
    np.savez(tmp_path / "rows.npz", **rows)
    assert optimize(tmp_path / "model.onnx", forms=["simplified"], samples=tmp_path / "rows.npz").rows == 3
    np.savez(tmp_path / "rows.npz", **(arrays | {"X": arrays["X"][0]}))
    with pytest.raises(InvalidInput, match="or arrays as the model takes them, got "):
        optimize(tmp_path / "model.onnx", forms=["simplified"], samples=tmp_path / "rows.npz")


def test_a_model_that_takes_no_random_numbers_says_what_to_give(tmp_path: Path) -> None:
    model = models.model(
        [helper.make_node("Gather", ["table", "X"], ["Y"])],
        [models.tensor("X", "INT64", ["b", 1])],
        [models.tensor("Y", "FP32", ["b", 1, 2])],
        [numpy_helper.from_array(np.zeros((1, 2), np.float32), "table")],
    )
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(
        InvalidInput, match=r"does not answer random numbers, so give rows that it takes: --samples FILE"
    ):
        optimize(tmp_path / "model.onnx", forms=["simplified"])


def test_numbers_that_are_no_scores_have_a_cosine_alone(tmp_path: Path) -> None:
    weights = numpy_helper.from_array(np.random.default_rng(3).standard_normal((4, 4), dtype=np.float32), "W")
    model = models.model(
        [helper.make_node("MatMul", ["X", "W"], ["Y"])],
        [models.tensor("X", "FP32", ["b", 3, 4])],
        [models.tensor("Y", "FP32", ["b", 3, 4])],
        [weights],
    )
    onnx.save(model, tmp_path / "model.onnx")
    fp16 = optimize(tmp_path / "model.onnx", forms=["fp16"]).results[-1]
    assert fp16.agreement is None
    assert fp16.cosine
    assert 0.999 < fp16.cosine <= 1
