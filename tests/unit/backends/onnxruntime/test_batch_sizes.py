"""In which sizes batches run, and what a model hears that has none."""

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper
from onnx.external_data_helper import set_external_data

from runners.backends.onnxruntime.batch_sizes import BatchSizes, batch_sizes
from runners.backends.onnxruntime.values import Provider
from runners.errors import ConfigInvalid
from tests import models
from tests.unit.backends.onnxruntime.stated import parameter
from tests.unit.text import config

BATCHED = "dynamic_batching { }"
OUTPUT = 'output { name: "Y" data_type: TYPE_FP32 dims: [ 1, 8, 8 ] }'
IMAGE = 'input { name: "X" data_type: TYPE_FP32 dims: [ 1, 8, 8 ] }'
ON_GPU = (Provider("cuda", (("device_id", "0"),)),)


def convolution() -> ModelProto:
    weights = helper.make_tensor("W", TensorProto.FLOAT, [1, 1, 3, 3], np.ones(9, np.float32).tobytes(), raw=True)
    given, made = (models.tensor(name, "FP32", ["rows", 1, 8, 8]) for name in ("X", "Y"))
    return models.model([helper.make_node("Conv", ["X", "W"], ["Y"], pads=[1] * 4)], [given], [made], [weights])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "model.onnx").write_bytes(convolution().SerializeToString())
    return tmp_path / "model.onnx"


def sizes(
    path: Path,
    largest: int,
    more: str = BATCHED,
    providers: tuple[Provider, ...] = ON_GPU,
    *,
    tensors: str = IMAGE + OUTPUT,
) -> BatchSizes:
    return batch_sizes(config(f'name: "m" max_batch_size: {largest} {tensors} {more}'), providers, path)


@pytest.mark.parametrize(
    ("largest", "light", "heavy"),
    [
        (2, (1, 2), (1, 2)),
        (8, (1, 2, 4, 8), (1, 4, 8)),
        (64, (1, 2, 4, 8, 16, 32, 64), (1, 4, 16, 64)),
        (100, (1, 2, 4, 8, 16, 32, 64, 100), (1, 4, 16, 64, 100)),
    ],
)
def test_a_model_with_convolutions_has_several_on_a_gpu_and_fewer_with_many_weights(
    path: Path, largest: int, light: tuple[int, ...], heavy: tuple[int, ...]
) -> None:
    assert sizes(path, largest) == BatchSizes(light, model="m")
    model = convolution()
    set_external_data(model.graph.initializer[0], "weights.bin")
    path.write_bytes(model.SerializeToString())
    with (path.parent / "weights.bin").open("wb") as file:
        file.truncate(300 << 20)
    assert sizes(path, largest) == BatchSizes(heavy, model="m")


def test_others_have_none(path: Path, tmp_path: Path) -> None:
    assert sizes(path, 0) == sizes(path, 1) == BatchSizes()
    assert sizes(path, 8, providers=()) == BatchSizes()
    assert sizes(path, 8, providers=(Provider("tensorrt", ()), *ON_GPU)) == BatchSizes()
    plain = tmp_path / "plain.onnx"
    plain.write_bytes(models.add_sub(["batch", 16]).SerializeToString())
    assert sizes(plain, 8) == BatchSizes()


@pytest.mark.parametrize("providers", [(), ON_GPU])
def test_what_is_stated_counts_everywhere(path: Path, providers: tuple[Provider, ...]) -> None:
    stated = parameter("kushi.batch_sizes", "4, 1")
    assert sizes(path, 16, stated, providers) == BatchSizes((1, 4, 16), stated=True, model="m")
    for text in ("any", " any "):
        assert sizes(path, 16, parameter("kushi.batch_sizes", text) + BATCHED, providers) == BatchSizes()


@pytest.mark.parametrize(
    ("more", "tensors", "why"),
    [
        (BATCHED, IMAGE.replace("1, 8", "1, -1") + OUTPUT, "input 'X' has dims [1, -1, 8]"),
        (BATCHED, IMAGE + OUTPUT.replace("1, 8, 8", "-1"), "output 'Y' has dims [-1]"),
        ("", IMAGE + OUTPUT, "it has no dynamic_batching; state 'kushi.batch_sizes' where"),
    ],
)
def test_one_whose_rows_may_depend_on_others_has_none_by_itself_and_hears_why(
    path: Path, caplog: pytest.LogCaptureFixture, more: str, tensors: str, why: str
) -> None:
    assert sizes(path, 8, more, tensors=tensors) == BatchSizes()
    assert f"the convolutions of 'm' are planned anew for each other batch: {why}" in caplog.text
    assert "HEURISTIC makes that shorter" in caplog.text


def test_a_limit_of_memory_is_not_multiplied(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = (("device_id", "0"), ("gpu_mem_limit", "1000"))
    assert sizes(path, 8, providers=(Provider("cuda", options),)) == BatchSizes()
    assert "each size needs memory of its own, and 'gpu_mem_limit' is stated" in caplog.text


def test_who_has_chosen_a_search_hears_nothing_of_it(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = (("cudnn_conv_algo_search", "HEURISTIC"), ("gpu_mem_limit", "1000"))
    sizes(path, 8, providers=(Provider("cuda", options),))
    assert "makes that shorter" not in caplog.text
    assert "planned anew" in caplog.text


@pytest.mark.parametrize(
    ("largest", "value", "text"),
    [
        (
            0,
            "1",
            "parameter 'kushi.batch_sizes' of model 'm' needs a max_batch_size above 0: the model takes no batches",
        ),
        (8, "9", "parameter 'kushi.batch_sizes' of model 'm': expected sizes up to max_batch_size, 8, got 9"),
        (8, "", "parameter 'kushi.batch_sizes' of model 'm': expected 'any', or at most 64 sizes of batches"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(path: Path, largest: int, value: str, text: str) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        sizes(path, largest, parameter("kushi.batch_sizes", value))
    assert str(raised.value).startswith(text)
