"""Which forms of a model are tried, in which order, with which configuration."""

import logging
from collections.abc import Collection
from pathlib import Path

import pytest

from runners.alternatives import candidates
from runners.errors import ConfigInvalid
from runners.repository.layout import scan
from runners.repository.messages import ModelConfig
from runners.repository.resolve import resolve
from tests import models

BASE = """backend: "onnxruntime"
max_batch_size: 4
input { name: "X" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ 2 ] }
optimization { graph { level: 1 } }
parameters { key: "own" value { string_value: "kept" } }
"""


def forms(
    folder: Path, stated: str, true: Collection[str] = (), files: dict[str, str] | None = None
) -> list[tuple[str, ModelConfig]]:
    parameter = f'parameters {{ key: "kushi.alternatives" value {{ string_value: "{stated}" }} }}'
    model = models.write(folder, "m", b"", BASE + parameter)
    for name, text in (files or {}).items():
        (model / "configs").mkdir(exist_ok=True)
        (model / "configs" / f"{name}.pbtxt").write_text(text)
    (source,) = scan([folder]).models
    found = candidates(resolve(source, auto_complete=True), holds=lambda condition: condition in true)
    return [(one.name, one.resolved.config) for one in found]


def served(config: ModelConfig) -> str:
    return config.parameters["kushi.alternative"].string_value


def test_a_model_without_them_is_as_it_is(tmp_path: Path) -> None:
    models.write(tmp_path, "m", b"", BASE)
    (source,) = scan([tmp_path]).models
    resolved = resolve(source, auto_complete=True)
    (only,) = candidates(resolved)
    assert only.name == ""
    assert only.resolved is resolved


def test_they_come_in_their_order_and_the_configuration_itself_last(tmp_path: Path) -> None:
    found = forms(tmp_path, "openvino if intel, pytorch if gpu , python", true=("intel",), files=None)
    assert [name for name, _ in found] == ["openvino", "python", "onnxruntime"]
    assert [served(config) for _, config in found] == [
        "openvino: this machine has intel",
        "python: it is the first that can run here",
        "onnxruntime: none of the alternatives can run here",
    ]


def test_a_backend_takes_the_file_that_it_has_or_the_one_that_is_there(tmp_path: Path) -> None:
    (_, openvino), (_, own) = forms(tmp_path, "openvino")
    assert (openvino.backend, openvino.platform, openvino.default_model_filename) == ("openvino", "", "model.onnx")
    assert (own.backend, own.default_model_filename) == ("onnxruntime", "model.onnx")
    (tmp_path / "m" / "1" / "model.xml").touch()
    (source,) = scan([tmp_path]).models
    first = next(candidates(resolve(source, auto_complete=True)))
    assert first.resolved.config.default_model_filename == "model.xml"


def test_what_belongs_to_one_backend_is_not_carried_to_another(tmp_path: Path) -> None:
    (_, openvino), (_, own) = forms(tmp_path, "openvino")
    assert openvino.optimization.graph.level == 0
    assert own.optimization.graph.level == 1
    assert openvino.parameters["own"].string_value == "kept"
    assert openvino.max_batch_size == 4


def test_a_file_says_what_is_different(tmp_path: Path) -> None:
    text = """backend: "openvino"
default_model_filename: "model.onnx"
instance_group { count: 3 }
parameters { key: "PERFORMANCE_HINT" value { string_value: "LATENCY" } }"""
    (name, config), _ = forms(tmp_path, "fast", files={"fast": text})
    assert name == "fast"
    assert (config.backend, config.instance_group[0].count, config.max_batch_size) == ("openvino", 3, 4)
    assert config.parameters["PERFORMANCE_HINT"].string_value == "LATENCY"
    assert [tensor.name for tensor in config.input] == ["X"]
    assert [tensor.name for tensor in config.output] == ["Y"]


def test_one_that_cannot_be_is_left_out_with_the_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "runners"):
        found = forms(tmp_path, "nothing, mine, openvino if sm>=80", files={"mine": 'backend: "mine"'})
    assert [name for name, _ in found] == ["onnxruntime"]
    assert "alternative 'nothing' cannot be served: neither" in caplog.text
    assert "alternative 'mine' cannot be served" in caplog.text
    assert "alternative 'openvino' is for machines with sm>=80" in caplog.text


@pytest.mark.parametrize("stated", ["", "openvino if", "openvino if fast", "openvino, ", "a b", "openvino if sm>80"])
def test_another_value_is_refused(tmp_path: Path, stated: str) -> None:
    with pytest.raises(
        ConfigInvalid, match=r"expected forms as 'NAME' or 'NAME if CONDITION' .*'amd', 'arm', 'gpu', 'intel'"
    ):
        forms(tmp_path, stated)


def test_more_forms_than_anybody_has_are_refused(tmp_path: Path) -> None:
    assert forms(tmp_path / "most", ", ".join(["nothing"] * 16))
    with pytest.raises(ConfigInvalid, match=r"names 17 forms, expected at most 16$"):
        forms(tmp_path / "more", ", ".join(["nothing"] * 17))
