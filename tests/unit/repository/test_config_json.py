import json

from google.protobuf import json_format

from runners.repository.config_json import to_plain
from runners.repository.messages import ModelConfig
from tests.unit.text import INPUT, ONNX, config


def test_an_empty_configuration_has_every_plain_field() -> None:
    plain = to_plain(ModelConfig())
    assert plain["max_batch_size"] == 0
    assert (plain["input"], plain["parameters"], plain["platform"]) == ([], {}, "")
    assert not {"dynamic_batching", "version_policy", "optimization"} & set(plain)


def test_64_bit_integers_are_numbers() -> None:
    plain = to_plain(
        config(
            "input { name: 'X' data_type: TYPE_INT64 dims: [ -1, 9007199254740993 ] reshape { shape: [ 2 ] } } "
            "version_policy { specific { versions: [ 7 ] } } "
            "dynamic_batching { max_queue_delay_microseconds: 5 default_queue_policy { default_timeout_microseconds: 6 "
            "max_queue_size: 7 } }"
        )
    )
    assert plain["input"][0]["dims"] == [-1, 9007199254740993]
    assert plain["input"][0]["reshape"] == {"shape": [2]}
    assert plain["version_policy"] == {"specific": {"versions": [7]}}
    assert plain["dynamic_batching"]["max_queue_delay_microseconds"] == 5
    assert plain["dynamic_batching"]["default_queue_policy"] == {
        "timeout_action": "REJECT",
        "default_timeout_microseconds": 6,
        "allow_timeout_override": False,
        "max_queue_size": 7,
    }


def test_names_are_those_of_config_pbtxt_and_enums_are_names() -> None:
    plain = to_plain(config(f"{ONNX} {INPUT} instance_group {{ kind: KIND_CPU count: 2 gpus: 1 }}"))
    assert plain["input"][0]["data_type"] == "TYPE_FP32"
    assert plain["input"][0]["format"] == "FORMAT_NONE"
    assert plain["instance_group"][0]["kind"] == "KIND_CPU"
    assert plain["instance_group"][0]["gpus"] == [1]


def test_maps_are_objects() -> None:
    plain = to_plain(config('parameters { key: "a" value { string_value: "1" } } metric_tags { key: "x" value: "y" }'))
    assert plain["parameters"] == {"a": {"string_value": "1"}}
    assert plain["metric_tags"] == {"x": "y"}


def test_the_json_reads_back_as_the_same_configuration() -> None:
    written = config(
        f"{ONNX} {INPUT} max_batch_size: 8 version_policy {{ latest {{ num_versions: 2 }} }} "
        "dynamic_batching { preferred_batch_size: [ 4 ] priority_queue_policy { key: 3 value { max_queue_size: 2 } } } "
        "optimization { graph { level: -1 } cuda { graphs: true } }"
    )
    assert json_format.Parse(json.dumps(to_plain(written)), ModelConfig()) == written
