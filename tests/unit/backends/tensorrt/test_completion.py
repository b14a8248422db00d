"""What is taken from a plan where config.pbtxt leaves it open."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runners.backends.tensorrt.completion import check_shape_tensors, complete, infos
from runners.backends.tensorrt.plan import Range
from runners.errors import ConfigInvalid, Unsupported
from runners.repository.complete import check_against_model
from tests.unit.text import config as parse

from .plans import given, made, plan

PLAN = plan(given("X", (-1, 3, 8), ((1, 3, 8), (4, 3, 8), (16, 3, 8))), made("Y", (-1, 10), "FP16"))


def test_all_is_filled_in_and_the_batch_is_that_of_the_profile() -> None:
    config = complete(parse('name: "m"'), PLAN, (0,))
    assert config.max_batch_size == 16
    assert config.HasField("dynamic_batching")
    assert [(tensor.name, list(tensor.dims)) for tensor in config.input] == [("X", [3, 8])]
    assert [(tensor.name, tensor.data_type, list(tensor.dims)) for tensor in config.output] == [("Y", 10, [10])]
    check_against_model(config, infos(config, PLAN.inputs), infos(config, PLAN.outputs))


def test_dimensions_without_the_batch_say_that_there_are_batches() -> None:
    one_row = plan(given("X", (1, -1), ((1, 1), (1, 64), (1, 512))), made("Y", (1, -1)))
    stated = parse(
        'name: "m" input { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } '
        'output { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }'
    )
    config = complete(stated, one_row, (0,))
    assert config.max_batch_size == 1
    assert not config.HasField("dynamic_batching")
    check_against_model(config, infos(config, one_row.inputs), infos(config, one_row.outputs))


def test_dimensions_with_the_batch_say_that_there_are_none() -> None:
    config = complete(parse('name: "m" input { name: "X" dims: [ -1, 3, 8 ] }'), PLAN, (0,))
    assert config.max_batch_size == 0
    assert list(config.output[0].dims) == [-1, 10]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("max_batch_size: 17", "specified max-batch 17 but TensorRT engine only supports max-batch 16"),
        (
            'input { name: "X" dims: [ 3, 8 ] } output { name: "Y" dims: [ -1, 10 ] }',
            "contradicting each other in terms of whether batching is supported",
        ),
        ('input { name: "Z" dims: [ 3, 8 ] }', "unexpected inference input 'Z' for model 'm', allowed inputs are: X"),
    ],
)
def test_what_contradicts_the_plan_is_an_error(text: str, error: str) -> None:
    with pytest.raises(ConfigInvalid, match=error):
        complete(parse(f'name: "m" {text}'), PLAN, (0,))


def test_a_dimension_that_one_of_both_leaves_open_fits() -> None:
    config = complete(parse('name: "m" input { name: "X" dims: [ -1, 8 ] }'), PLAN, (0,))
    check_against_model(config, infos(config, PLAN.inputs), infos(config, PLAN.outputs))
    wrong = complete(parse('name: "m" input { name: "X" dims: [ 4, 8 ] }'), PLAN, (0,))
    with pytest.raises(ConfigInvalid, match=r"the model expects 3 dimensions \(shape \[-1,3,8\]\)"):
        check_against_model(wrong, infos(wrong, PLAN.inputs), infos(wrong, PLAN.outputs))


def test_scalars_of_a_batch_are_reshaped() -> None:
    rows = plan(given("X", (-1,), ((1,), (4,), (8,))), made("Y", (-1,)))
    config = complete(parse('name: "m"'), rows, (0,))
    assert list(config.input[0].dims) == [1]
    assert config.input[0].HasField("reshape")
    assert not config.input[0].reshape.shape


def test_shape_tensors_are_marked_and_have_no_batches() -> None:
    values = replace(given("S", (2,), datatype="INT32"), values=(Range((1, 1), (2, 2), (4, 4)),), on_host=True)
    shaped = plan(values, made("Y", (-1, -1)))
    config = complete(parse('name: "m" input { name: "S" dims: [ 2 ] }'), shaped, (0,))
    assert config.input[0].is_shape_tensor
    check_shape_tensors(config, shaped)
    config.input[0].is_shape_tensor = False
    with pytest.raises(ConfigInvalid, match="is a shape tensor but the model configuration doesn't mark it"):
        check_shape_tensors(config, shaped)
    config.max_batch_size = 2
    with pytest.raises(Unsupported, match="expected max_batch_size 0"):
        check_shape_tensors(config, shaped)
    marked = complete(parse('name: "m"'), PLAN, (0,))
    marked.output[0].is_shape_tensor = True
    with pytest.raises(ConfigInvalid, match="is incorrectly marked as a shape tensor"):
        check_shape_tensors(marked, PLAN)
