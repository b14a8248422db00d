import logging

import pytest

from runners.errors import Unsupported
from runners.repository.discovery import descriptors
from runners.repository.messages import ModelConfig
from runners.repository.supported_fields import check_supported_fields
from tests.unit.text import INPUT, ONNX, OUTPUT, config

HONOURED = [
    INPUT,
    OUTPUT,
    "max_batch_size: 8",
    "version_policy { specific { versions: 3 } }",
    'default_model_filename: "net.onnx"',
    'input { name: "X" format: FORMAT_NCHW reshape { shape: [ 1 ] } optional: true }',
    'output { name: "Y" reshape { shape: [ ] } }',
    "dynamic_batching { preferred_batch_size: 4 max_queue_delay_microseconds: 5 preserve_ordering: true }",
    "dynamic_batching { default_queue_policy { default_timeout_microseconds: 5 allow_timeout_override: true } }",
    "dynamic_batching { default_queue_policy { max_queue_size: 5 timeout_action: DELAY } }",
    "dynamic_batching { priority_levels: 1024 default_priority_level: 1 }",
    "dynamic_batching { priority_levels: 1 default_priority_level: 1 priority_queue_policy { key: 1 value { } } }",
    'instance_group { name: "g" kind: KIND_CPU count: 2 }',
    "instance_group { kind: KIND_AUTO }",
    "optimization { graph { level: 1 } }",
    "model_warmup { name: 'w' batch_size: 2 count: 3 inputs { key: 'X' value { dims: 4 zero_data: true } } }",
    "optimization { input_pinned_memory { enable: false } output_pinned_memory { enable: true } }",
    *(
        f'backend: "{backend}" parameters {{ key: "{key}" value {{ string_value: "1" }} }}'
        for backend, descriptor in descriptors().items()
        for key in (*descriptor.parameters, "kushi.cores", "kushi.inline", "kushi.max_queue_bytes")
    ),
    "ensemble_scheduling { step { model_name: 'a' model_version: 1 } max_inflight_requests: 3 }",
    "metric_tags { key: 'a' value: 'b' }",
    "model_metrics { metric_control { metric_identifier { family: 'f' } histogram_options { buckets: 1 } } }",
    # set, but to what they are without being set
    "response_cache { enable: false }",
    "model_transaction_policy { decoupled: false }",
    "input { name: 'X' allow_ragged_batch: false is_shape_tensor: false }",
    "instance_group { passive: false host_policy: '' }",
    "dynamic_batching { priority_levels: 0 }",
    "optimization { eager_batching: false priority: PRIORITY_DEFAULT cuda { graphs: false } }",
]

REFUSED = {
    "runtime: 'libx.so'": "runtime",
    "sequence_batching { }": "sequence_batching",
    "sequence_batching { direct { } }": "sequence_batching",
    "sequence_batching { max_sequence_idle_microseconds: 5 oldest { } }": "sequence_batching",
    "ensemble_scheduling { step { model_namespace: 'a' } }": "ensemble_scheduling.step[0].model_namespace",
    "batch_input { kind: BATCH_ELEMENT_COUNT }": "batch_input",
    "batch_output { }": "batch_output",
    "cc_model_filenames { key: '7.5' value: 'a' }": "cc_model_filenames",
    "model_transaction_policy { decoupled: true }": "model_transaction_policy",
    "model_repository_agents { agents { name: 'a' } }": "model_repository_agents",
    "backend: 'onnxruntime' max_batch_size: 8 dynamic_batching { } input { } input { allow_ragged_batch: true }": (
        "input[1].allow_ragged_batch"
    ),
    "input { is_shape_tensor: true }": "input[0].is_shape_tensor",
    "input { is_non_linear_format_io: true }": "input[0].is_non_linear_format_io",
    "output { is_shape_tensor: true }": "output[0].is_shape_tensor",
    "instance_group { secondary_devices { device_id: 1 } }": "instance_group[0].secondary_devices",
    "instance_group { passive: true }": "instance_group[0].passive",
    "instance_group { host_policy: 'p' }": "instance_group[0].host_policy",
}

OF_PLANS = "it is for TensorRT plans"
IGNORED = {
    "response_cache { enable: true }": ("response_cache", "the server has no response cache"),
    "model_operations { op_library_filename: 'a.so' }": (
        "model_operations",
        "libraries of operators are for ONNX models",
    ),
    "optimization { graph { level: 1 } }": ("optimization.graph", "levels are those of ONNX Runtime"),
    "optimization { priority: PRIORITY_MAX }": ("optimization.priority", OF_PLANS),
    "optimization { cuda { graphs: true busy_wait_events: true } }": ("optimization.cuda", OF_PLANS),
    "optimization { execution_accelerators { cpu_execution_accelerator { name: 'openvino' } } }": (
        "optimization.execution_accelerators",
        "they are for ONNX models",
    ),
    "optimization { gather_kernel_buffer_threshold: 1 }": ("optimization.gather_kernel_buffer_threshold", OF_PLANS),
    "optimization { eager_batching: true }": ("optimization.eager_batching", OF_PLANS),
    "cc_model_filenames { }": ("cc_model_filenames", "it names no file"),
    "cc_model_filenames { key: '7.5' value: '' }": ("cc_model_filenames", "it names no file"),
    "max_batch_size: 8 input { name: 'X' } input { name: 'Z' allow_ragged_batch: true }": (
        "input[1].allow_ragged_batch",
        "requests of one shape run together, or each alone",
    ),
    "dynamic_batching { } input { name: 'X' allow_ragged_batch: true }": (
        "input[0].allow_ragged_batch",
        "requests of one shape run together, or each alone",
    ),
}
"""What Triton reads for other models alone"""


@pytest.mark.parametrize("text", HONOURED)
def test_a_field_that_has_an_effect_is_accepted(text: str) -> None:
    check_supported_fields(config(ONNX if text == "" else text))


@pytest.mark.parametrize("text", REFUSED)
def test_a_field_without_effect_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(Unsupported) as raised:
        check_supported_fields(config(text))
    assert f"field '{REFUSED[text]}' is not supported by this version" in str(raised.value)


@pytest.mark.parametrize(
    ("group", "instead"),
    [
        (
            "passive: true",
            "passive' is not supported by this version: an instance that takes no requests would do noth",
        ),
        (
            "host_policy: 'p'",
            "host_policy' is not supported by this version: the parameter 'kushi.cores' says on which ",
        ),
        (
            "secondary_devices { kind: KIND_NVDLA device_id: 1 }",
            "secondary_devices' is not supported by this version: nothing is placed on NVDLA, on purpose; without it ",
        ),
    ],
)
def test_a_field_of_instances_that_is_refused_for_good_says_what_to_do_instead(group: str, instead: str) -> None:
    with pytest.raises(Unsupported) as raised:
        check_supported_fields(config(f"{ONNX} instance_group {{ }} instance_group {{ {group} }}"))
    assert str(raised.value).startswith(f"field 'instance_group[1].{instead}")


def test_all_fields_that_are_refused_are_named_together() -> None:
    with pytest.raises(Unsupported) as raised:
        check_supported_fields(
            config(
                "sequence_batching { direct { } } batch_output { } instance_group { host_policy: 'p' passive: true }"
            )
        )
    passive, host_policy, others = str(raised.value).split("; ")
    assert host_policy.startswith("field 'instance_group[0].host_policy' is not supported by this version: the param")
    assert passive.startswith("field 'instance_group[0].passive' is not supported by this version: an instance that")
    expected = "fields 'sequence_batching', 'batch_output' are not supported by this version, remove them or set them"
    assert others == f"{expected} to their defaults"


@pytest.mark.parametrize("text", IGNORED)
def test_a_field_that_means_something_elsewhere_alone_is_logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    field, why = IGNORED[text]
    with caplog.at_level(logging.WARNING, "runners"):
        check_supported_fields(config(f'name: "m" backend: "pytorch" {text}'))
    assert caplog.messages == [f"model 'm': field '{field}' has no effect: {why}"]


def test_a_python_model_may_be_handed_requests_of_different_shapes(caplog: pytest.LogCaptureFixture) -> None:
    ragged = "max_batch_size: 8 dynamic_batching { } input { name: 'X' allow_ragged_batch: true }"
    with caplog.at_level(logging.WARNING, "runners"):
        check_supported_fields(config(f'backend: "python" {ragged}'))
    assert not caplog.messages


def test_every_field_of_the_configuration_is_either_supported_or_refused() -> None:
    fields = {field.name for field in config("").DESCRIPTOR.fields}
    tried = {field.name for text in [*HONOURED, *REFUSED, *IGNORED, ONNX] for field, _ in config(text).ListFields()}
    assert tried >= fields


def test_more_levels_than_a_queue_keeps_are_refused() -> None:
    with pytest.raises(Unsupported) as raised:
        check_supported_fields(config("dynamic_batching { priority_levels: 1025 }"))
    assert str(raised.value) == (
        "field 'dynamic_batching.priority_levels' is 1025, at most 1024 are supported by this version"
    )


def parameter(backend: str, key: str) -> ModelConfig:
    return config(f'name: "m" backend: "{backend}" parameters {{ key: "{key}" value {{ string_value: "1" }} }}')


@pytest.mark.parametrize(
    ("backend", "key", "hint"),
    [
        ("onnxruntime", "kushi.inlien", "did you mean 'kushi.inline'?"),
        (
            "onnxruntime",
            "kushi.nothing",
            "those of Kushi are kushi.alternatives, kushi.cores, kushi.inline, kushi.isolate, ",
        ),
        ("onnxruntime", "kushi.alternatve", "did you mean 'kushi.alternatives'?"),
        ("onnxruntime", "kushi_alternatives", "did you mean 'kushi.alternatives'?"),
        ("onnxruntime", "Kushi.Samples", "did you mean 'kushi.samples'?"),
        ("onnxruntime", "intra_op_threads", "did you mean 'intra_op_thread_count'?"),
        ("onnxruntime", "session.disable_prepack", "did you mean 'session.disable_prepacking'?"),
        ("pytorch", "INTRA_OP_THREADS", "did you mean 'INTRA_OP_THREAD_COUNT'?"),
    ],
)
def test_a_parameter_that_is_nearly_one_of_ours_is_a_warning(
    caplog: pytest.LogCaptureFixture, backend: str, key: str, hint: str
) -> None:
    with caplog.at_level(logging.WARNING, "runners"):
        check_supported_fields(parameter(backend, key))
    assert caplog.messages[0].startswith(f"model 'm': parameter '{key}' is not known here and has no effect, ")
    assert hint in caplog.text


@pytest.mark.parametrize("key", ["metadata", "model_dir", "tokenizer_dir", "version", "INFERENCE", "memory"])
def test_a_free_parameter_is_taken_without_a_word(caplog: pytest.LogCaptureFixture, key: str) -> None:
    with caplog.at_level(logging.WARNING, "runners"):
        check_supported_fields(parameter("onnxruntime", key))
    assert not caplog.messages


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("session.save_model_format", "it would read or write files of the host"),
        ("session.intra_op_num_threads", "it is said by 'intra_op_thread_count'"),
        ("session.set_denormal_as_zero", "it would change how the thread computes"),
    ],
)
def test_a_parameter_that_the_backend_refuses_is_an_error_with_its_reason(key: str, why: str) -> None:
    with pytest.raises(Unsupported) as raised:
        check_supported_fields(parameter("onnxruntime", key))
    assert f"parameter '{key}' is not supported by this version: {why}" in str(raised.value)


def test_what_a_backend_refuses_is_not_what_it_takes() -> None:
    for descriptor in descriptors().values():
        assert not descriptor.refused.keys() & set(descriptor.parameters)


def test_a_backend_that_is_not_there_is_refused_before_its_parameters() -> None:
    with pytest.raises(Unsupported) as raised:
        check_supported_fields(config('backend: "dali" parameters { key: "EXECUTION_ENV_PATH" }'))
    instead = "use a Python model with nvidia.dali, whose pipeline is built in initialize"
    assert str(raised.value) == f"backend 'dali' is native code of Triton's and not supported, {instead}"
    with pytest.raises(Unsupported) as raised:
        check_supported_fields(config('backend: "mine"'))
    names = ("tensorflow", "tensorrt", "onnxruntime", "openvino", "pytorch", "python", "fil", "openvino_genai")
    expected = f"expected {' or '.join(map(repr, names))}"
    assert str(raised.value) == f"backend 'mine' is not supported by this version, {expected}"
