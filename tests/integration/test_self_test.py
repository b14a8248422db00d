"""`kushi.self_test`: before a version serves, it is held against its runtime alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from runners import Engine, EngineOptions, KushiError, ModelOptions
from runners.cli import main
from runners.control.check import check
from runners.control.self_test import _Comparison
from runners.differences import as_plain
from runners.errors import ConfigInvalid
from runners.repository.messages import ModelConfig
from runners.tolerance import Tolerance
from tests import models

if TYPE_CHECKING:
    from pathlib import Path

RANDOM: Final = 'parameters { key: "kushi.self_test" value { string_value: "random" } }\n'
ROWS: Final = 'parameters { key: "kushi.self_test" value { string_value: "rows.npz" } }\n'
OPENVINO: Final = 'backend: "openvino"\ndefault_model_filename: "model.onnx"\n'
PADDED: Final = "".join(
    f'parameters {{ key: "{key}" value {{ string_value: "YES" }} }}\n'
    for key in ("SKIP_OV_DYNAMIC_BATCHSIZE", "ENABLE_BATCH_PADDING")
)
"""Rows of zeros stand beside what is asked"""
EXPLICIT: Final = EngineOptions(models=ModelOptions(control="explicit"))


def outcome(folder: Path, name: str = "m") -> str:
    with Engine(folder) as engine:
        stated: str = engine.get_model_config(name)["parameters"]["kushi.self_tested"]["string_value"]
        return stated


def failure(folder: Path, name: str = "m") -> str:
    with Engine(folder, options=EngineOptions(exit_on_error=False)) as engine:
        return str(engine.failures[name])


def minus_mean() -> onnx.ModelProto:
    """Each row without the mean of its batch, so that what stands beside it matters"""
    nodes = [
        helper.make_node("ReduceMean", ["INPUT0"], ["MEAN"], axes=[0], keepdims=1),
        helper.make_node("Sub", ["INPUT0", "MEAN"], ["OUTPUT0"]),
    ]
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 2]) for name in ("INPUT0", "OUTPUT0")]
    graph = helper.make_graph(nodes, "minus_mean", tensors[:1], tensors[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def drawn() -> onnx.ModelProto:
    """Noise, another one at each run"""
    nodes = [
        helper.make_node("RandomNormalLike", ["INPUT0"], ["NOISE"]),
        helper.make_node("Add", ["INPUT0", "NOISE"], ["OUTPUT0"]),
    ]
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 2]) for name in ("INPUT0", "OUTPUT0")]
    graph = helper.make_graph(nodes, "drawn", tensors[:1], tensors[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize(("backend", "config"), [("onnxruntime", ""), ("openvino", OPENVINO)])
def test_a_model_that_answers_as_its_runtime_serves_and_says_so(tmp_path: Path, backend: str, config: str) -> None:
    models.write(tmp_path, "m", models.add_sub(("batch", 2), "FP32"), config + RANDOM)
    said = outcome(tmp_path)
    assert re.fullmatch(
        rf"64 requests are answered as by {backend} alone, 4 of them also in one batch and beside others; "
        rf"the same answers; \S+ ms a request, alone \S+ ms",
        said,
    )


def test_a_model_without_batches_is_asked_one_request_after_the_other(tmp_path: Path) -> None:
    models.write(tmp_path, "m", models.add_sub((2,), "FP32"), RANDOM)
    assert outcome(tmp_path).startswith("64 requests are answered as by onnxruntime alone; the same answers; ")


def test_rows_of_a_file_are_asked_as_they_are(tmp_path: Path) -> None:
    written = models.write(tmp_path, "m", models.add_sub(("batch", 2), "FP32"), ROWS)
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.savez(written / "rows.npz", allow_pickle=False, INPUT0=rows, INPUT1=rows)
    assert outcome(tmp_path).startswith("3 requests are answered as by onnxruntime alone, 3 of them also in one batch")


def test_shapes_of_clients_are_those_of_the_model_to_its_runtime(tmp_path: Path) -> None:
    reshaped = 'name: "%s" data_type: TYPE_FP32 dims: [1, 2] reshape { shape: [2] }'
    tensors = [("input", "INPUT0"), ("input", "INPUT1"), ("output", "OUTPUT0"), ("output", "OUTPUT1")]
    config = "".join(f"{role} {{ {reshaped % name} }}\n" for role, name in tensors)
    models.write(tmp_path, "m", models.add_sub(("batch", 2), "FP32"), f"max_batch_size: 4\n{config}{RANDOM}")
    assert outcome(tmp_path).startswith("64 requests are answered as by onnxruntime alone, 4 of them")


def test_a_wrong_answer_is_not_served_and_what_served_before_goes_on(tmp_path: Path) -> None:
    written = models.write(tmp_path, "m", minus_mean(), OPENVINO + "max_batch_size: 4\n")
    one = np.array([[4, 8]], np.float32)
    with Engine(tmp_path, options=EXPLICIT) as engine:
        engine.load_model("m")
        assert engine.infer("m", one)["OUTPUT0"].tolist() == [[0, 0]]
        with (written / "config.pbtxt").open("a") as config:
            config.write(PADDED + ROWS)
        np.savez(written / "rows.npz", allow_pickle=False, INPUT0=one)
        with pytest.raises(KushiError) as caught:
            engine.load_model("m")
        assert (
            "the self-test of model 'm': output 'OUTPUT0', to row 0: the served answer is 3.0 at [0, 0], "
            "that of openvino alone 0.0, by at most 6.0e+00" in str(caught.value)
        )
        assert engine.infer("m", one)["OUTPUT0"].tolist() == [[0, 0]]


def test_a_tolerance_says_how_far_is_too_far(tmp_path: Path) -> None:
    wide = 'parameters { key: "kushi.self_test_tolerance" value { string_value: "0.5" } }\n'
    written = models.write(tmp_path, "m", minus_mean(), OPENVINO + "max_batch_size: 4\n" + PADDED + ROWS + wide)
    np.savez(written / "rows.npz", allow_pickle=False, INPUT0=np.full((1, 2), 0.25, np.float32))
    assert "; differences of at most 1.9e-01; " in outcome(tmp_path)


def test_rows_that_depend_on_one_another_are_not_held_against_other_batches(tmp_path: Path) -> None:
    models.write(tmp_path, "m", minus_mean(), RANDOM)
    assert "4 of them also in one batch (on which their answers depend, in onnxruntime alone as well); " in outcome(
        tmp_path
    )


def test_a_model_that_draws_numbers_cannot_be_compared(tmp_path: Path) -> None:
    models.write(tmp_path, "m", drawn(), RANDOM)
    assert "onnxruntime alone answers the same request in another way when it is asked again" in failure(tmp_path)


def test_a_model_that_takes_no_random_numbers_wants_rows(tmp_path: Path) -> None:
    models.write(tmp_path, "m", models.identity("BYTES"), RANDOM)
    assert "input 'INPUT0' is of type BYTES" in failure(tmp_path)


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        ("yes", "expected 'random' or an .npz file inside the directory of the model, got 'yes'"),
        ("../rows.npz", "expected 'random' or an .npz file inside the directory of the model, got '../rows.npz'"),
    ],
)
def test_what_is_stated_is_checked_before_anything_is_opened(tmp_path: Path, stated: str, reason: str) -> None:
    np.savez(tmp_path / "rows.npz", INPUT0=np.zeros((1, 2)))
    models.write(tmp_path, "m", models.add_sub(("batch", 2), "FP32"), RANDOM.replace("random", stated))
    (found,) = check([tmp_path])
    assert found.reason.endswith(reason)
    assert failure(tmp_path).endswith(reason)


def test_a_tolerance_is_a_number(tmp_path: Path) -> None:
    odd = 'parameters { key: "kushi.self_test_tolerance" value { string_value: "2" } }\n'
    models.write(tmp_path, "m", models.add_sub(("batch", 2), "FP32"), RANDOM + odd)
    assert failure(tmp_path).endswith("expected a number from 0 up to 1, got '2'")


def test_what_has_no_runtime_of_its_own_has_no_self_test(tmp_path: Path) -> None:
    models.write(tmp_path, "m", models.add_sub(("batch", 2), "FP32"))
    ensemble = tmp_path / "e"
    (ensemble / "1").mkdir(parents=True)
    tensors = [("input", "INPUT0"), ("input", "INPUT1"), ("output", "OUTPUT0")]
    stated = "".join(f'{role} {{ name: "{name}" data_type: TYPE_FP32 dims: [2] }}\n' for role, name in tensors)
    maps = "".join(f'{role}_map {{ key: "{name}" value: "{name}" }} ' for role, name in tensors)
    (ensemble / "config.pbtxt").write_text(
        f'platform: "ensemble"\nmax_batch_size: 4\n{stated}'
        f'ensemble_scheduling {{ step {{ model_name: "m" model_version: -1 {maps} }} }}\n{RANDOM}'
    )
    reason = "an ensemble has no runtime of its own that its answers could be held against"
    assert failure(tmp_path, "e").endswith(reason)
    assert next(one for one in check([tmp_path]) if one.name == "e").reason.endswith(reason)


def test_all_models_have_one_where_the_server_wants_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    models.write(tmp_path, "m", models.add_sub(("batch", 2), "FP32"))
    models.write(tmp_path, "texts", models.identity("BYTES"))
    models.write(tmp_path, "noise", drawn())
    with Engine(tmp_path, options=EngineOptions(models=ModelOptions(self_test=True))) as engine:
        stated = {name: engine.get_model_config(name)["parameters"] for name in ("m", "noise", "texts")}
    assert {name for name, parameters in stated.items() if "kushi.self_tested" in parameters} == {"m"}
    assert "'texts' version 1: no self-test: input 'INPUT0' is of type BYTES" in caplog.text
    assert "'noise' version 1: no self-test: onnxruntime alone answers the same request in another way" in caplog.text


def test_a_wrong_answer_is_not_served_whoever_wants_the_test(tmp_path: Path) -> None:
    models.write(tmp_path, "m", minus_mean(), OPENVINO + "max_batch_size: 4\n" + PADDED)
    options = EngineOptions(exit_on_error=False, models=ModelOptions(self_test=True))
    with Engine(tmp_path, options=options) as engine:
        assert "the self-test of model 'm': output 'OUTPUT0', to row 0: the served answer is" in str(
            engine.failures["m"]
        )


def test_kushi_check_makes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models.write(tmp_path, "m", models.add_sub(("batch", 2), "FP32"))
    assert main(["check", "--load", "--self-test", str(tmp_path)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("m: loads, onnxruntime, version 1: INPUT0 FP32 [-1, 2], ")
    assert "; self-test: 64 requests are answered as by onnxruntime alone, " in line


def of_all(folder: Path) -> Engine:
    return Engine(folder, options=EngineOptions(exit_on_error=False, models=ModelOptions(self_test=True)))


@pytest.mark.parametrize(
    "queue",
    [
        "default_queue_policy { max_queue_size: 1 }",
        "default_queue_policy { default_timeout_microseconds: 1 }",
        "max_queue_delay_microseconds: 60000000",
        "priority_levels: 2 default_priority_level: 2 preferred_batch_size: 3 max_queue_delay_microseconds: 60000000",
    ],
)
def test_its_queue_neither_refuses_nor_delays_what_it_is_asked(tmp_path: Path, queue: str) -> None:
    text = f"max_batch_size: 4 dynamic_batching {{ {queue} }}\n"
    models.write(tmp_path, "m", models.add_sub(("batch", 2), "FP32"), text + RANDOM)
    assert outcome(tmp_path).startswith("64 requests are answered as by onnxruntime alone, 4 of them also")


def test_rows_and_answers_are_bounded(tmp_path: Path) -> None:
    # of 40 MB, and of 80
    models.write(tmp_path, "one", models.identity("FP32", (10_000_000,)))
    models.write(tmp_path, "none", models.identity("FP32", (20_000_000,)))
    with of_all(tmp_path) as engine:
        said = engine.get_model_config("one")["parameters"]["kushi.self_tested"]["string_value"]
        assert said.startswith("1 request is answered as by onnxruntime alone; the same answers; ")
        assert "kushi.self_tested" not in engine.get_model_config("none")["parameters"]


def test_the_first_place_that_differs_is_found_at_once() -> None:
    comparison = _Comparison(None, ModelConfig(backend="it"), Tolerance())  # type: ignore[arg-type] # nobody is asked
    wanted = np.zeros((1000, 5000), np.float32)
    answered = wanted.copy()
    answered[-1, -1] = 1
    with pytest.raises(ConfigInvalid, match=r"the served answer is 1\.0 at \[999, 4999\], that of it alone 0\.0"):
        comparison._check({"y": answered}, {"y": wanted}, "")


def test_texts_with_zeros_at_their_end_differ() -> None:
    assert not np.array_equal(as_plain(np.array([b"a"], object)), as_plain(np.array([b"a\0"], object)))
    assert as_plain(np.array(1.0)).shape == ()


def test_nobody_says_by_himself_what_came_of_it(tmp_path: Path) -> None:
    said = 'parameters { key: "kushi.self_tested" value { string_value: "all fine" } }'
    models.write(tmp_path, "m", models.add_sub(("batch", 2), "FP32"), said)
    with Engine(tmp_path) as engine:
        assert "kushi.self_tested" not in engine.get_model_config("m")["parameters"]


def test_a_form_without_a_runtime_serves_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    forms = 'parameters { key: "kushi.alternatives" value { string_value: "code" } }\n'
    tensors = "".join(
        f'{role} {{ name: "{name}" data_type: TYPE_FP32 dims: [2] }}\n'
        for role, name in [("input", "INPUT0"), ("input", "INPUT1"), ("output", "OUTPUT0"), ("output", "OUTPUT1")]
    )
    text = f"max_batch_size: 4\n{tensors}{forms}{RANDOM}"
    written = models.write(tmp_path, "m", models.add_sub(("batch", 2), "FP32"), text)
    (written / "configs").mkdir()
    (written / "configs" / "code.pbtxt").write_text('backend: "python"')
    (written / "1" / "model.py").write_text(
        "class TritonPythonModel:\n    def execute(self, requests):\n        return [None for _ in requests]\n"
    )
    with Engine(tmp_path) as engine:
        assert engine.get_model_config("m")["backend"] == "python"
    assert "'m': no self-test: backend 'python' has no runtime of its own" in caplog.text


def test_nothing_of_it_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = tmp_path / "temporary"
    files.mkdir()
    monkeypatch.setenv("TMPDIR", str(files))
    monkeypatch.setattr("tempfile.tempdir", None)
    models.write(tmp_path, "m", models.add_sub(("batch", 2), "FP32"), RANDOM)
    models.write(tmp_path, "noise", drawn(), RANDOM)
    with Engine(tmp_path, options=EngineOptions(exit_on_error=False)) as engine:
        assert "noise" in engine.failures
        assert "m" not in engine.failures
    assert [*files.iterdir()] == []
