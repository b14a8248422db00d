import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.errors import ConfigInvalid
from runners.repository.complete import check_against_model, complete
from runners.repository.tensors import TensorInfo
from tests.unit.text import INPUT, ONNX, OUTPUT, config, fp32

BATCHED = ([fp32("X", -1, 4)], [fp32("Y", -1, 2)])


def test_everything_is_taken_from_a_model_that_can_batch(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "runners"):
        done = complete(config(ONNX), *BATCHED)
    assert done == config(f"{ONNX} max_batch_size: 4 dynamic_batching {{ }} {INPUT} {OUTPUT}")
    assert "autofilled max_batch_size to 4 for model 'm'" in caplog.text


def test_a_maximum_that_is_stated_is_kept_and_a_scheduler_added() -> None:
    done = complete(config(f"{ONNX} max_batch_size: 16"), *BATCHED)
    assert (done.max_batch_size, done.HasField("dynamic_batching")) == (16, True)


def test_a_maximum_of_one_gets_no_scheduler() -> None:
    assert not complete(config(f"{ONNX} max_batch_size: 1"), *BATCHED).HasField("dynamic_batching")


def test_a_scheduler_that_is_stated_is_kept() -> None:
    text = f"{ONNX} max_batch_size: 8 dynamic_batching {{ max_queue_delay_microseconds: 7 }}"
    assert complete(config(text), *BATCHED).dynamic_batching.max_queue_delay_microseconds == 7


def test_nothing_is_completed_when_inputs_and_outputs_are_stated() -> None:
    written = config(f"{ONNX} {INPUT} {OUTPUT}")
    assert complete(written, *BATCHED) == written


def test_only_the_missing_side_is_completed() -> None:
    done = complete(config(f"{ONNX} {INPUT}"), *BATCHED)
    assert done == config(f"{ONNX} max_batch_size: 4 dynamic_batching {{ }} {INPUT} {OUTPUT}")


def test_a_fixed_first_dimension_means_no_batching() -> None:
    done = complete(config(ONNX), [fp32("X", 1, 4)], [fp32("Y", -1, 2)])
    assert (done.max_batch_size, done.HasField("dynamic_batching")) == (0, False)
    assert list(done.input[0].dims) == [1, 4]
    assert list(done.output[0].dims) == [-1, 2]


def test_a_maximum_for_a_model_that_cannot_batch_is_tritons_error() -> None:
    with pytest.raises(ConfigInvalid) as raised:
        complete(config(f"{ONNX} max_batch_size: 2"), [fp32("X", 1, 4)], [fp32("Y", -1, 2)])
    assert str(raised.value) == (
        "autofill failed for model 'm': model does not support batching while non-zero max_batch_size is specified"
    )


def test_one_value_per_row_becomes_one_dimension_with_an_empty_reshape() -> None:
    done = complete(config(ONNX), [fp32("X", -1)], [fp32("Y", -1)])
    assert list(done.input[0].dims) == [1]
    assert done.input[0].HasField("reshape")
    assert list(done.input[0].reshape.shape) == []


def test_a_scalar_becomes_one_dimension_without_reshape() -> None:
    done = complete(config(ONNX), [fp32("X")], [fp32("Y")])
    assert (done.max_batch_size, list(done.input[0].dims)) == (0, [1])
    assert not done.input[0].HasField("reshape")


@pytest.mark.parametrize(
    ("datatype", "data_type"), [("BYTES", "TYPE_STRING"), ("BF16", "TYPE_BF16"), ("UINT8", "TYPE_UINT8")]
)
def test_data_types_are_named_as_in_config_pbtxt(datatype: str, data_type: str) -> None:
    done = complete(config(ONNX), [TensorInfo("X", datatype, (2,))], [TensorInfo("Y", datatype, (2,))])
    assert done.input[0].data_type == config(f"input {{ data_type: {data_type} }}").input[0].data_type


dims = st.lists(st.integers(1, 9) | st.just(-1), max_size=4)


@given(st.lists(dims, min_size=1, max_size=3), st.lists(dims, min_size=1, max_size=3))
def test_what_is_completed_always_fits_the_model(ins: list[list[int]], outs: list[list[int]]) -> None:
    inputs = [fp32(f"X{i}", *d) for i, d in enumerate(ins)]
    outputs = [fp32(f"Y{i}", *d) for i, d in enumerate(outs)]
    done = complete(config(ONNX), inputs, outputs)
    check_against_model(done, inputs, outputs)
    assert (done.max_batch_size > 0) == all(d[:1] == [-1] for d in ins + outs)


MISNAMED = OUTPUT.replace('"Y"', '"Z"')
MISFITS = [
    (f"{ONNX} {OUTPUT}", "unable to load model 'm', configuration expects 0 inputs, model provides 1"),
    (
        f"{ONNX} {INPUT} {INPUT} {OUTPUT}",
        "unable to load model 'm', configuration expects 2 inputs, model provides 1",
    ),
    (
        f"{ONNX} max_batch_size: 4 {INPUT.replace('X', 'Z')} {OUTPUT}",
        "unexpected inference input 'Z', allowed inputs are: X",
    ),
    (
        f"{ONNX} max_batch_size: 4 {INPUT} {MISNAMED}",
        "unexpected inference output 'Z', allowed outputs are: Y",
    ),
    (
        f"{ONNX} max_batch_size: 4 {INPUT.replace('FP32', 'INT32')} {OUTPUT}",
        "unable to load model 'm', configuration expects datatype TYPE_INT32 for input 'X', model provides TYPE_FP32",
    ),
    (
        f"{ONNX} max_batch_size: 4 {INPUT.replace('[ 4 ]', '[ 5 ]')} {OUTPUT}",
        (
            "model 'm', tensor 'X': the model expects 2 dimensions (shape [-1,4]) but the model configuration "
            "specifies 2 dimensions (an initial batch dimension because max_batch_size > 0 followed by the explicit "
            "tensor shape, making complete shape [-1,5])"
        ),
    ),
    (
        f"{ONNX} {INPUT} {OUTPUT}",
        (
            "model 'm', tensor 'X': the model expects 2 dimensions (shape [-1,4]) but the model configuration "
            "specifies 1 dimensions (shape [4])"
        ),
    ),
    (
        f"{ONNX} max_batch_size: 4 input {{ name: 'X' data_type: TYPE_FP32 dims: 4 optional: true }} {OUTPUT}",
        "unable to load model 'm', optional input 'X' is not supported for models that support batching",
    ),
]


@pytest.mark.parametrize(("text", "message"), MISFITS)
def test_a_configuration_that_does_not_fit_is_refused_with_tritons_text(text: str, message: str) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        check_against_model(config(text), *BATCHED)
    assert str(raised.value) == message


def test_a_model_without_a_variable_first_dimension_does_not_batch() -> None:
    with pytest.raises(
        ConfigInvalid, match=r"the first dimension must be -1; but shape expected by the model is \[1,4\]"
    ):
        check_against_model(config(f"{ONNX} max_batch_size: 4 {INPUT} {OUTPUT}"), [fp32("X", 1, 4)], [fp32("Y", -1, 2)])


def test_an_input_may_be_narrower_than_the_model_and_an_output_may_not() -> None:
    narrow = config(f"{ONNX} max_batch_size: 4 {INPUT} {OUTPUT}")
    check_against_model(narrow, [fp32("X", -1, -1)], [fp32("Y", -1, 2)])
    with pytest.raises(ConfigInvalid, match="tensor 'Y'"):
        check_against_model(narrow, [fp32("X", -1, -1)], [fp32("Y", -1, -1)])


def test_the_shape_that_the_model_sees_is_the_reshaped_one() -> None:
    text = INPUT.replace("dims: [ 4 ]", "dims: [ 2, 2 ] reshape { shape: [ 4 ] }")
    check_against_model(config(f"{ONNX} max_batch_size: 4 {text} {OUTPUT}"), *BATCHED)


def test_a_scalar_is_configured_with_ones() -> None:
    one = config(f"{ONNX} {INPUT.replace('4', '1')} {OUTPUT.replace('2 ]', '1 ]')}")
    check_against_model(one, [fp32("X")], [fp32("Y")])
    with pytest.raises(ConfigInvalid, match="scalar tensor 'X', should only provide 1"):
        check_against_model(config(f"{ONNX} {INPUT}"), [fp32("X")], [fp32("Y")])


def test_an_optional_input_need_not_be_among_those_that_the_model_requires() -> None:
    text = f"{ONNX} {INPUT} input {{ name: 'Z' data_type: TYPE_FP32 dims: 1 optional: true }} {OUTPUT}"
    check_against_model(config(text), [fp32("X", 4)], [fp32("Y", 2)])


def test_outputs_may_be_left_out() -> None:
    check_against_model(config(f"{ONNX} max_batch_size: 4 {INPUT} {OUTPUT}"), BATCHED[0], [*BATCHED[1], fp32("Z", -1)])
