import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.errors import ConfigInvalid, KushiError, Unsupported
from runners.repository.normalize import fill_instance_groups
from runners.repository.validate import check_instance_groups, check_model, check_tensors
from tests.unit.text import INPUT, ONNX, OUTPUT, config


def test_a_plain_model_passes() -> None:
    plain = config(f"{ONNX} max_batch_size: 8 dynamic_batching {{ preferred_batch_size: [ 4, 8 ] }} {INPUT} {OUTPUT}")
    check_model(plain, "m")
    check_tensors(plain)
    check_instance_groups(fill_instance_groups(plain))


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ('name: "m" platform: "what"', ConfigInvalid, "unexpected platform type 'what' for m"),
        ('name: "m" backend: "mine"', Unsupported, "backend 'mine' is not supported by this version"),
        (
            'name: "m" backend: "onnxruntime" platform: "tensorrt_plan"',
            ConfigInvalid,
            "unexpected 'platform' and 'backend' pair, got:tensorrt_plan, onnxruntime",
        ),
        (f"{ONNX} max_batch_size: -1", ConfigInvalid, "'max_batch_size' must be non-negative value for m"),
        (
            f"{ONNX} instance_group [ {{ count: 0 }}, {{ count: -5 }} ]",
            ConfigInvalid,
            "field 'instance_group[1].count' is -5, expected 1 or more, or 0 for the default",
        ),
        (
            f"{ONNX} max_batch_size: 4 dynamic_batching {{ preferred_batch_size: 0 }}",
            ConfigInvalid,
            "dynamic batching preferred size must be positive for m",
        ),
        (
            f"{ONNX} max_batch_size: 4 dynamic_batching {{ preferred_batch_size: 5 }}",
            ConfigInvalid,
            "dynamic batching preferred size must be <= max batch size for m",
        ),
    ],
)
def test_a_wrong_model_is_refused_with_tritons_text(text: str, error: type[KushiError], message: str) -> None:
    with pytest.raises(error) as raised:
        check_model(config(text), "m")
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "batching",
    [
        "priority_levels: 2 default_priority_level: 2 priority_queue_policy { key: 2 value { timeout_action: DELAY } }",
        "preserve_ordering: true priority_levels: 1 default_priority_level: 1",
        "preserve_ordering: true default_queue_policy { timeout_action: DELAY }",
    ],
    ids=["two levels", "one ordered level", "a delay that never comes"],
)
def test_levels_that_tritons_rules_allow_pass(batching: str) -> None:
    check_model(config(f"{ONNX} dynamic_batching {{ {batching} }}"), "m")


IN_RANGE = "must be in range [1, 2] for m"
KEY_IN_RANGE = "priority queue policy must have priority level in range [1, 2] for m"
ONE_LEVEL = "Only one priority level is allowed when 'preserve_ordering' is true for m"
NO_DELAY = "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for m"
LEVELS = "priority_levels: 2 default_priority_level: 1"
DELAYS = "{ default_timeout_microseconds: 1 timeout_action: DELAY }"


@pytest.mark.parametrize(
    ("batching", "message"),
    [
        ("priority_levels: 2", f"default priority level {IN_RANGE}"),
        ("priority_levels: 2 default_priority_level: 3", f"default priority level {IN_RANGE}"),
        (f"{LEVELS} priority_queue_policy {{ key: 0 value {{ }} }}", KEY_IN_RANGE),
        (f"{LEVELS} priority_queue_policy {{ key: 3 value {{ }} }}", KEY_IN_RANGE),
        (f"preserve_ordering: true {LEVELS}", ONE_LEVEL),
        (f"preserve_ordering: true default_queue_policy {DELAYS}", NO_DELAY),
        (f"preserve_ordering: true priority_queue_policy {{ key: 1 value {DELAYS} }}", NO_DELAY),
    ],
)
def test_wrong_levels_are_refused_with_tritons_text(batching: str, message: str) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        check_model(config(f"{ONNX} dynamic_batching {{ {batching} }}"), "m")
    assert str(raised.value) == message


def test_the_directory_must_be_named_as_the_model() -> None:
    with pytest.raises(ConfigInvalid) as raised:
        check_model(config(ONNX), "other")
    assert str(raised.value) == (
        "unexpected directory name 'other' for model 'm', directory name must equal model name: leave 'name' out of "
        "the configuration, or rename the directory"
    )


@pytest.mark.parametrize(
    ("group", "error", "message"),
    [
        ("kind: KIND_GPU", ConfigInvalid, "m_0 of model m has kind KIND_GPU but server does not support GPUs"),
        (
            "kind: KIND_MODEL",
            Unsupported,
            (
                "m_0 of model m has kind KIND_MODEL, and models of backend 'onnxruntime' do not choose their devices "
                "by themselves: use another kind"
            ),
        ),
        ("kind: KIND_CPU gpus: 0", ConfigInvalid, "m_0 of model m has kind KIND_CPU but specifies one or more GPUs"),
        ("gpus: [ 0, 1 ]", ConfigInvalid, "m_0 of model m specifies gpus [0, 1] but server does not support GPUs"),
        ("profile: '0'", ConfigInvalid, "specifies profile field which is only supported for TensorRT models"),
    ],
)
def test_a_wrong_instance_group_is_refused_with_tritons_text(group: str, error: type[KushiError], message: str) -> None:
    with pytest.raises(error) as raised:
        check_instance_groups(
            fill_instance_groups(config(f"{ONNX} instance_group {{ {group} }}")),
            instead_of_kind_model="use another kind",
        )
    assert f"instance group {message}" in str(raised.value) or message in str(raised.value)


def test_a_model_may_place_itself_where_its_backend_lets_it() -> None:
    def check(group: str) -> None:
        filled = fill_instance_groups(config(f'name: "m" backend: "python" instance_group {{ {group} }}'), gpus=(0,))
        check_instance_groups(filled, gpus=(0,))

    check("kind: KIND_MODEL count: 2")
    with pytest.raises(ConfigInvalid, match="m_0 of model m has kind KIND_MODEL but specifies one or more GPUs"):
        check("kind: KIND_MODEL gpus: 0")


@pytest.mark.parametrize("group", ["kind: KIND_GPU", "kind: KIND_GPU gpus: 1 count: 2", "gpus: [ 0, 1 ]", ""])
def test_gpus_that_the_backend_can_use_pass(group: str) -> None:
    filled = fill_instance_groups(config(f'name: "m" backend: "pytorch" instance_group {{ {group} }}'), gpus=(0, 1))
    check_instance_groups(filled, gpus=(0, 1))


@pytest.mark.parametrize("group", ["kind: KIND_GPU gpus: 2", "gpus: [ 0, 2 ]"])
def test_a_gpu_that_is_not_there_is_refused_with_tritons_text(group: str) -> None:
    filled = fill_instance_groups(config(f'name: "m" backend: "pytorch" instance_group {{ {group} }}'), gpus=(0, 1))
    with pytest.raises(ConfigInvalid, match=r"m_0 of model m specifies invalid or unsupported gpu id 2\. .* are: 0, 1"):
        check_instance_groups(filled, gpus=(0, 1))


TENSOR_FAULTS = [
    ("data_type: TYPE_FP32 dims: 1", 0, "must specify 'name' for m"),
    ("name: 'X' dims: 1", 0, "'X' must specify 'data_type' for m"),
    ("name: 'X' data_type: TYPE_FP32", 0, "'X' must specify 'dims' for m"),
    (
        "name: 'X' data_type: TYPE_FP32 dims: 0",
        0,
        "'X' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for m",
    ),
    ("name: 'X' data_type: TYPE_FP32 dims: -2", 0, "'X' dimension must be integer >= 1, or -1"),
    (
        "name: 'X' data_type: TYPE_FP32 dims: 1 reshape { shape: 0 }",
        0,
        "'X' reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension for m",
    ),
    (
        "name: 'X' data_type: TYPE_FP32 dims: 1 reshape { }",
        0,
        "'X' cannot have empty reshape for non-batching model as scalar tensors are not supported for m",
    ),
    (
        "name: 'X' data_type: TYPE_FP32 dims: [ 2, 3 ] reshape { shape: 5 }",
        4,
        "'X' has different size for dims and reshape for m",
    ),
    ("name: 'X' data_type: TYPE_FP32 dims: 2 reshape { }", 4, "'X' has different size for dims and reshape for m"),
    ("name: 'X' data_type: TYPE_FP32 dims: -1 reshape { shape: 4 }", 4, "'X' has different size for dims and reshape"),
    (
        "name: 'X' data_type: TYPE_FP32 dims: [ -1, -1 ] reshape { shape: -1 }",
        4,
        "'X' has different number of variable-size dimensions for dims and reshape for m",
    ),
    (
        "name: 'X' data_type: TYPE_FP32 dims: [ 2, -1 ] reshape { shape: [ -1, 2 ] }",
        4,
        "'X' has different size for dims and reshape for m",
    ),
]


@pytest.mark.parametrize("role", ["input", "output"])
@pytest.mark.parametrize(("fields", "max_batch_size", "message"), TENSOR_FAULTS)
def test_a_wrong_tensor_is_refused_with_tritons_text(role: str, fields: str, max_batch_size: int, message: str) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        check_tensors(config(f"{ONNX} max_batch_size: {max_batch_size} {role} {{ {fields} }}"))
    assert f"model {role} {message}" in str(raised.value)


@pytest.mark.parametrize(
    "fields",
    [
        "dims: [ 2, 4, -1, 6 ] reshape { shape: [ 8, -1, 1, 6 ] }",
        "dims: [ 16 ] reshape { shape: [ 4, 4 ] }",
        "dims: [ 1 ] reshape { }",
        "dims: [ 1, 1 ] reshape { shape: [ ] }",
        "dims: [ -1 ]",
    ],
)
def test_a_tensor_may_be_reshaped_to_as_many_elements(fields: str) -> None:
    check_tensors(config(f"{ONNX} max_batch_size: 4 input {{ name: 'X' data_type: TYPE_FP32 {fields} }}"))


@pytest.mark.parametrize(("dims", "shape"), [(1025, 2), (2, 1025)])
def test_a_tensor_of_more_dimensions_than_any_is_refused(dims: int, shape: int) -> None:
    many = f"dims: {[2**62] * dims} reshape {{ shape: {[2**62] * shape} }}"
    text = f"{ONNX} input {{ name: 'X' data_type: TYPE_FP32 {many} }}"
    with pytest.raises(ConfigInvalid, match="model input 'X' has 1025 dimensions, expected at most 1024, for m"):
        check_tensors(config(text))


def test_an_image_format_requires_three_dimensions() -> None:
    text = f"{ONNX} input {{ name: 'X' data_type: TYPE_FP32 dims: [ 4, 4 ] format: FORMAT_NHWC }}"
    with pytest.raises(ConfigInvalid, match="model input NHWC/NCHW require 3 dims for m"):
        check_tensors(config(text))


@given(st.lists(st.integers(1, 5) | st.just(-1), min_size=1, max_size=5), st.data())
def test_splitting_a_fixed_dimension_never_invalidates_a_reshape(dims: list[int], data: st.DataObject) -> None:
    shape = list(dims)
    for _ in range(data.draw(st.integers(0, 3))):
        shape.insert(data.draw(st.integers(0, len(shape))), 1)
    text = f"input {{ name: 'X' data_type: TYPE_FP32 dims: {dims} reshape {{ shape: {shape} }} }}"
    check_tensors(config(f"{ONNX} max_batch_size: 4 {text}"))
