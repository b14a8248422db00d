"""Models with several forms: the first that can run is served, and the configuration says which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
import pytest

from runners import Engine, EngineOptions, KushiError, LogOptions, ModelOptions
from runners.backends import pipeline
from tests import models

if TYPE_CHECKING:
    from pathlib import Path

    from runners.repository.layout import ModelSource
    from runners.repository.messages import ModelConfig

SAMPLES: Final = 'parameters { key: "kushi.samples" value { string_value: "rows.npz" } }\n'
ALTERNATIVES: Final = 'parameters { key: "kushi.alternatives" value { string_value: "%s" } }\n'


def test_the_first_that_can_run_is_served_and_the_reason_stands_in_the_configuration(tmp_path: Path) -> None:
    models.write(tmp_path, "m", models.add_sub(("batch", 2), "FP32"), ALTERNATIVES % "tensorrt if sm>=80, openvino")
    with Engine(tmp_path) as engine:
        config = engine.get_model_config("m")
        assert config["backend"] == "openvino"
        stated = config["parameters"]["kushi.alternative"]["string_value"]
        assert stated == "openvino: it is the first that can run here"
        one = np.array([[1, 2]], np.float32)
        assert engine.infer("m", one, one)["OUTPUT0"].tolist() == [[2, 4]]


def test_one_that_fails_gives_way_to_the_next(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # OpenVINO takes no strings of ONNX
    models.write(tmp_path, "m", models.identity("BYTES"), ALTERNATIVES % "openvino")
    with Engine(tmp_path) as engine:
        config = engine.get_model_config("m")
        assert config["backend"] == "onnxruntime"
        stated = config["parameters"]["kushi.alternative"]["string_value"]
        assert stated == "onnxruntime: none of the alternatives can run here"
        assert engine.infer("m", np.array([["a"]], np.object_))["OUTPUT0"].tolist() == [[b"a"]]
    assert "alternative 'openvino' cannot be served" in caplog.text
    assert "is of BYTES" in caplog.text


def test_where_none_can_run_the_failure_is_that_of_the_configuration_itself(tmp_path: Path) -> None:
    models.write(tmp_path, "m", b"no model", ALTERNATIVES % "openvino")
    with Engine(tmp_path, options=EngineOptions(exit_on_error=False)) as engine:
        assert "onnx model" in str(engine.failures["m"])


def write_forms(folder: Path, stated: str, **arrays: np.ndarray[Any, Any]) -> Path:
    """The sum and the difference of two rows, which all forms are asked before one is served"""
    written = models.write(folder, "m", models.add_sub(("batch", 2), "FP32"), ALTERNATIVES % stated + SAMPLES)
    np.savez(written / "rows.npz", allow_pickle=False, **arrays)
    (written / "configs").mkdir()
    return written


def write_doubles(folder: Path) -> Path:
    """Rows for the second of two forms"""
    written = write_forms(folder, "doubles", **rows())
    (written / "configs" / "doubles.pbtxt").write_text('default_model_filename: "doubles.onnx"')
    (written / "1" / "doubles.onnx").write_bytes(models.add_sub(("batch", 2), "FP64").SerializeToString())
    return written


def stated_by(folder: Path) -> str:
    with Engine(folder) as engine:
        stated: str = engine.get_model_config("m")["parameters"]["kushi.alternative"]["string_value"]
        return stated


def rows(count: int = 3) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    return {name: random.standard_normal((count, 2)).astype(np.float32) for name in ("INPUT0", "INPUT1")}


def test_the_answers_of_all_forms_are_compared_before_one_is_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    write_forms(tmp_path, "openvino", **rows())
    with caplog.at_level("INFO"):
        stated = stated_by(tmp_path)
    expected = "openvino: it is the first that can run here; it answers the same as 'onnxruntime'"
    assert stated == expected
    assert "alternative 'onnxruntime' is asked the rows of 'rows.npz'" in caplog.text
    assert [
        record for record in caplog.records if record.levelname == "WARNING" and "alternative" in record.message
    ] == []
    # what was tried is not talked about as if it had served
    assert "unloaded" not in capfd.readouterr().err


def test_a_form_that_answers_something_else_is_served_with_a_warning_that_says_how_much(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written = write_forms(tmp_path, "worse", INPUT0=np.ones((1, 2), np.float32), INPUT1=np.ones((1, 2), np.float32))
    (written / "configs" / "worse.pbtxt").write_text('default_model_filename: "worse.onnx"')
    worse = models.add_sub(("batch", 2), "FP32")
    # the sum has the place of the difference
    worse.graph.node[1].op_type = "Add"
    (written / "1" / "worse.onnx").write_bytes(worse.SerializeToString())
    text = "its answers differ from those of 'onnxruntime' by at most 2.0e+00 (2.0e+00 of the largest number)"
    assert stated_by(tmp_path) == f"worse: it is the first that can run here; {text}"
    assert f"model 'm': alternative 'worse': {text}" in caplog.messages


def test_a_form_that_loads_and_cannot_answer_is_not_served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written = write_forms(tmp_path, "broken, openvino", **rows())
    (written / "configs" / "broken.pbtxt").write_text('default_model_filename: "broken.onnx"')
    broken = models.add_sub(("batch", 2), "FP32")
    cut = onnx.helper.make_tensor("cut", onnx.TensorProto.INT64, [1], [3])
    broken.graph.initializer.append(cut)
    broken.graph.node[0].output[0] = "sum"
    broken.graph.node.append(onnx.helper.make_node("Reshape", ["sum", "cut"], ["OUTPUT0"]))
    (written / "1" / "broken.onnx").write_bytes(broken.SerializeToString())
    assert stated_by(tmp_path).startswith("openvino: it is the first that can run here; it answers the same")
    assert "alternative 'broken' cannot be served" in caplog.text


def test_rows_that_cannot_be_read_fail_the_load(tmp_path: Path) -> None:
    written = write_forms(tmp_path, "openvino", INPUT0=np.ones((1, 2), np.float32))
    with pytest.raises(KushiError, match="expected arrays by the names of the inputs, INPUT0, INPUT1, got INPUT0"):
        Engine(tmp_path)
    content = (written / "rows.npz").read_bytes()
    for damaged in (b"", b"none", content[: len(content) // 2]):
        (written / "rows.npz").write_bytes(damaged)
        with pytest.raises(KushiError, match=r"expected an \.npz file: "):
            Engine(tmp_path)
    (written / "rows.npz").unlink()
    with pytest.raises(KushiError, match=r"expected an .npz file inside the directory of the model, got 'rows.npz'"):
        Engine(tmp_path)


def test_rows_of_another_shape_fail_the_load(tmp_path: Path) -> None:
    ones = np.ones((4, 3), np.float32)
    write_forms(tmp_path, "openvino", INPUT0=ones, INPUT1=ones)
    expected = r"'INPUT0' has rows of the shape \[3\], the model takes \[2\]; the first dimension of an array counts"
    with pytest.raises(KushiError, match=expected):
        Engine(tmp_path)


def test_rows_that_the_form_of_the_configuration_refuses_are_named(tmp_path: Path) -> None:
    """OpenVINO answers an index out of range"""
    written = write_forms(tmp_path, "openvino", INDEX=np.array([[1], [42]]))
    (written / "1" / "model.onnx").write_bytes(models.gather().SerializeToString())
    stated = stated_by(tmp_path)
    assert "openvino: it is the first that can run here; 'onnxruntime' is not compared: it does not answer" in stated
    assert "idx=42" in stated


def test_rows_that_no_form_answers_fail_the_load(tmp_path: Path) -> None:
    written = write_forms(tmp_path, "same", INDEX=np.array([[42]]))
    (written / "configs" / "same.pbtxt").write_text('default_model_filename: "model.onnx"')
    (written / "1" / "model.onnx").write_bytes(models.gather().SerializeToString())
    with pytest.raises(KushiError, match=r"no form answers the rows of '.*rows\.npz': .*idx=42"):
        Engine(tmp_path)


def test_what_serves_goes_on_where_the_rows_of_its_reload_cannot_be_read(tmp_path: Path) -> None:
    written = write_forms(tmp_path, "openvino", **rows())
    options = EngineOptions(models=ModelOptions(control="explicit", load=("m",)))
    with Engine(tmp_path, options=options) as engine:
        (written / "rows.npz").write_bytes(b"none")
        with pytest.raises(KushiError, match=r"expected an \.npz file"):
            engine.load_model("m")
        one = np.array([[1, 2]], np.float32)
        assert engine.infer("m", one, one)["OUTPUT0"].tolist() == [[2, 4]]


def test_a_form_that_other_rows_are_for_is_served_and_not_compared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_doubles(tmp_path)
    assert stated_by(tmp_path) == "doubles: it is the first that can run here"
    assert "'doubles' is not compared: parameter 'kushi.samples': samples" in caplog.text
    assert "'INPUT0' is float32, the model takes float64" in caplog.text


def test_a_form_is_served_though_the_one_that_the_rows_are_for_cannot_be_loaded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written = write_doubles(tmp_path)
    (written / "1" / "model.onnx").write_bytes(b"no model")
    assert stated_by(tmp_path) == "doubles: it is the first that can run here"
    assert "'doubles' is not compared" in caplog.text


def test_numbers_of_16_bits_that_differ_say_by_how_much(tmp_path: Path) -> None:
    written = write_forms(tmp_path, "other", INPUT0=np.ones((1, 2), np.float32))
    (written / "configs" / "other.pbtxt").write_text('default_model_filename: "other.onnx"')
    made = models.cast("FP32", "BF16")
    (written / "1" / "model.onnx").write_bytes(made.SerializeToString())
    made.graph.node[0].input[0] = "negative"
    made.graph.node.insert(0, onnx.helper.make_node("Neg", ["INPUT0"], ["negative"]))
    (written / "1" / "other.onnx").write_bytes(made.SerializeToString())
    assert "differ from those of 'onnxruntime' by at most 2.0e+00 (2.0e+00 of the largest number)" in stated_by(
        tmp_path
    )


def test_whatever_the_opening_of_a_form_raises_the_next_one_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_forms(tmp_path, "openvino", **rows())
    load = pipeline.load

    def broken(source: ModelSource, config: ModelConfig, version: int, **options: Any) -> pipeline.Loaded:  # noqa: ANN401 - passed on
        if config.backend == "openvino":
            raise OSError(5, "Input/output error", "model.onnx")
        return load(source, config, version, **options)

    monkeypatch.setattr(pipeline, "load", broken)
    assert stated_by(tmp_path) == "onnxruntime: none of the alternatives can run here"


def test_two_forms_of_one_name_are_two(tmp_path: Path) -> None:
    written = write_forms(tmp_path, "onnxruntime", **rows())
    (written / "configs" / "onnxruntime.pbtxt").write_text('default_model_filename: "worse.onnx"')
    worse = models.add_sub(("batch", 2), "FP32")
    worse.graph.node[1].op_type = "Add"
    (written / "1" / "worse.onnx").write_bytes(worse.SerializeToString())
    assert "its answers differ from those of 'onnxruntime' by at most" in stated_by(tmp_path)


def test_the_log_of_the_server_stays_as_it_is(tmp_path: Path) -> None:
    write_forms(tmp_path, "openvino", **rows())
    with Engine(tmp_path, options=EngineOptions(log=LogOptions(info=False, form="ISO8601"))) as engine:
        settings = engine.get_log_settings()
    assert (settings["log_info"], settings["log_format"]) == (False, "ISO8601")


def test_rows_of_a_model_with_one_form_compare_nothing_and_say_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    models.write(tmp_path, "m", models.add_sub(("batch", 2), "FP32"), SAMPLES)
    with Engine(tmp_path) as engine:
        assert "kushi.alternative" not in engine.get_model_config("m")["parameters"]
    assert "model 'm': its 'kushi.samples' compare nothing: it has one form here" in caplog.messages
