import json
from collections.abc import Sequence

import pytest

from runners.errors import ConfigInvalid
from runners.repository.messages import ModelConfig
from runners.repository.normalize import fill_defaults, fill_instance_groups
from runners.repository.specification import Specification, parameter, specify
from tests.unit.text import INPUT, ONNX, OUTPUT, config


def specification(text: str, *, scalars: Sequence[str] = (), inline: bool = True) -> Specification:
    filled = fill_defaults(fill_instance_groups(config(f"{ONNX} {text}")))
    return specify(filled, version=3, scalars=scalars, inline=inline, load_seconds=0.5)


def test_a_version_becomes_the_json_that_the_core_expects() -> None:
    plain = json.loads(specification(f"max_batch_size: 8 dynamic_batching {{ }} {INPUT} {OUTPUT}").model_dump_json())
    served = json.loads(plain.pop("config_json"))
    message = ModelConfig.FromString(bytes(plain.pop("config_message")))
    assert (message.name, message.input[0].name) == ("m", "X")
    assert plain == {
        "name": "m",
        "version": 3,
        "platform": "onnxruntime_onnx",
        "backend": "onnxruntime",
        "max_batch_size": 8,
        "inputs": [{"name": "X", "datatype": "FP32", "dims": [4], "reshape": None, "optional": False}],
        "outputs": [{"name": "Y", "datatype": "FP32", "dims": [2], "reshape": None, "labels": []}],
        "batching": {"preferred_batch_sizes": [8], "max_queue_delay_us": 0, "preserve_ordering": False},
        "queue": {
            "max_bytes": 268435456,
            "levels": [
                {
                    "max_requests": 4096,
                    "default_timeout_us": 0,
                    "allow_timeout_override": False,
                    "timeout_action": "REJECT",
                }
            ],
            "default_level": 1,
            "ragged": [],
        },
        "instances": 2,
        "cores": [],
        "rates": [],
        "inline": True,
        "decoupled": False,
        "load_seconds": 0.5,
        "metrics": {"first_response_buckets": None, "monitored": [], "tags": []},
    }
    assert served["max_batch_size"] == 8


def test_a_specification_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        specification("").name = "other"


def test_without_dynamic_batching_there_is_no_batcher() -> None:
    assert specification("max_batch_size: 8").batching is None


def test_the_batcher_gets_its_three_settings() -> None:
    batching = specification(
        "max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 8, 2, 8 ] max_queue_delay_microseconds: 70 "
        "preserve_ordering: true }"
    ).batching
    assert batching is not None
    assert batching.preferred_batch_sizes == (2, 8)
    assert (batching.max_queue_delay_us, batching.preserve_ordering) == (70, True)


@pytest.mark.parametrize(
    ("policy", "max_requests"),
    [("", 4096), ("default_queue_policy { max_queue_size: 7 }", 7), ("default_queue_policy { }", 0)],
)
def test_a_queue_policy_replaces_the_bound_in_number(policy: str, max_requests: int) -> None:
    queue = specification(f"dynamic_batching {{ {policy} }}").queue
    assert ([level.max_requests for level in queue.levels], queue.max_bytes) == ([max_requests], 268435456)


def test_the_timeouts_of_the_queue_policy_are_kept() -> None:
    policy = "default_timeout_microseconds: 9 allow_timeout_override: true timeout_action: DELAY"
    (level,) = specification(f"dynamic_batching {{ default_queue_policy {{ {policy} }} }}").queue.levels
    assert (level.default_timeout_us, level.allow_timeout_override, level.timeout_action) == (9, True, "DELAY")


def test_each_level_has_its_own_policy_or_the_default_one() -> None:
    queue = specification(
        "dynamic_batching { priority_levels: 3 default_priority_level: 2 default_queue_policy { max_queue_size: 7 } "
        "priority_queue_policy { key: 3 value { default_timeout_microseconds: 9 timeout_action: DELAY } } }"
    ).queue
    assert [(level.max_requests, level.default_timeout_us, level.timeout_action) for level in queue.levels] == [
        (7, 0, "REJECT"),
        (7, 0, "REJECT"),
        (0, 9, "DELAY"),
    ]
    assert queue.default_level == 2


def test_without_levels_what_is_said_of_them_means_nothing() -> None:
    queue = specification(
        "dynamic_batching { default_priority_level: 2 priority_queue_policy { key: 1 value { max_queue_size: 2 } } }"
    ).queue
    assert ([level.max_requests for level in queue.levels], queue.default_level) == ([4096], 1)


def test_instances_of_all_groups_add_up() -> None:
    assert specification("instance_group { count: 3 } instance_group { count: 2 }").instances == 5
    assert specification("instance_group { kind: KIND_GPU gpus: [ 0, 1 ] count: 3 }").instances == 6


def parameters(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'


def test_the_bound_in_bytes_can_be_changed() -> None:
    assert specification(parameters("kushi.max_queue_bytes", "1000")).queue.max_bytes == 1000
    with pytest.raises(ConfigInvalid, match=r"'kushi\.max_queue_bytes' of model 'm': expected at least 1, got 0"):
        specification(parameters("kushi.max_queue_bytes", "0"))


def test_inline_execution_needs_the_engine_and_the_configuration() -> None:
    assert specification(parameters("kushi.inline", "auto")).inline
    assert not specification(parameters("kushi.inline", "never")).inline
    assert not specification("", inline=False).inline
    with pytest.raises(ConfigInvalid, match=r"'kushi\.inline' of model 'm': expected 'auto' or 'never', got 'always'"):
        specification(parameters("kushi.inline", "always"))


def test_reading_a_missing_parameter_does_not_add_it() -> None:
    empty = config(ONNX)
    assert parameter(empty, "intra_op_thread_count", 5) == 5
    assert not empty.parameters


@pytest.mark.parametrize("value", ["", "x", "1.5", "-1"])
def test_a_parameter_that_is_no_number_is_refused(value: str) -> None:
    text = config(f"{ONNX} {parameters('intra_op_thread_count', value)}")
    with pytest.raises(ConfigInvalid, match=f"'intra_op_thread_count' of model 'm': expected .*, got '{value}'"):
        parameter(text, "intra_op_thread_count", 0)


def test_a_parameter_may_have_few_values() -> None:
    text = config(f"{ONNX} {parameters('execution_mode', '2')}")
    with pytest.raises(ConfigInvalid, match="expected one of 0, 1, got '2'"):
        parameter(text, "execution_mode", 0, allowed=(0, 1))


def test_reshapes_are_what_the_model_sees() -> None:
    text = "input { name: 'X' data_type: TYPE_STRING dims: [ 2, 2 ] reshape { shape: 4 } optional: true }"
    (tensor,) = specification(text).inputs
    assert (tensor.datatype, tensor.dims, tensor.reshape, tensor.optional) == ("BYTES", (2, 2), (4,), True)


def test_a_scalar_of_the_model_is_reshaped_to_rank_zero() -> None:
    text = "output { name: 'Y' data_type: TYPE_FP32 dims: 1 }"
    assert specification(text, scalars=["Y"]).outputs[0].reshape == ()
    assert "reshape" not in json.loads(specification(text, scalars=["Y"]).config_json)["output"][0]


@pytest.mark.parametrize(("backend", "ragged"), [("onnxruntime", ()), ("openvino", ()), ("python", (False, True))])
def test_only_a_model_that_is_handed_each_request_by_itself_has_ragged_batches(
    backend: str, ragged: tuple[bool, ...]
) -> None:
    # a batcher may come with what is completed from the file, behind all checks of what is stated
    text = 'input { name: "X" } input { name: "Z" allow_ragged_batch: true } max_batch_size: 8 dynamic_batching { }'
    made = specify(
        config(f'name: "m" backend: "{backend}" {text}'), version=1, scalars=(), inline=False, load_seconds=0.0
    )
    assert made.queue.ragged == ragged
