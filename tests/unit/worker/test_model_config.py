from __future__ import annotations

import json
from typing import Any

import pytest

from runners.worker.calls import auto_complete
from runners.worker.errors import TritonModelException
from runners.worker.model_config import ModelConfig

INPUT = {"name": "IN", "data_type": "TYPE_FP32", "dims": [4]}
OUTPUT = {"name": "OUT", "data_type": "TYPE_FP32", "dims": [4]}


def config(**fields: Any) -> ModelConfig:
    return ModelConfig(json.dumps({"name": "m", **fields}))


def test_an_empty_configuration_is_completed() -> None:
    made = config()
    made.set_max_batch_size(8)
    made.set_dynamic_batching()
    made.add_input({**INPUT, "optional": True})
    made.add_output(OUTPUT)
    made.set_model_transaction_policy({"decoupled": True})
    assert json.loads(made.as_json()) == {
        "name": "m",
        "max_batch_size": 8,
        "dynamic_batching": {},
        "input": [{**INPUT, "optional": True}],
        "output": [OUTPUT],
        "model_transaction_policy": {"decoupled": True},
    }


def test_the_configuration_is_read_as_models_do() -> None:
    made = config(input=[INPUT])
    assert [tensor["name"] for tensor in made.as_dict()["input"]] == ["IN"]
    assert [tensor["name"] for tensor in made.as_dict()["output"]] == []
    assert made.as_dict()["max_batch_size"] == 0


def test_what_is_configured_already_may_be_said_again() -> None:
    batching = {"max_queue_delay_microseconds": 5}
    made = config(
        input=[{**INPUT, "reshape": {"shape": [2, 2]}}],
        output=[OUTPUT],
        max_batch_size=4,
        dynamic_batching=batching,
        model_transaction_policy={"decoupled": False},
    )
    before = json.loads(made.as_json())
    made.add_input(INPUT)
    made.add_output(OUTPUT)
    made.set_max_batch_size(4)
    made.set_dynamic_batching()
    made.set_model_transaction_policy({"decoupled": False})
    assert json.loads(made.as_json()) == before


@pytest.mark.parametrize(
    ("fields", "verb", "argument", "text"),
    [
        (
            {"max_batch_size": 6},
            "set_max_batch_size",
            4,
            (
                "configuration specified max_batch_size 6, but in auto-complete-config function for model 'm' "
                "specified max_batch_size 4"
            ),
        ),
        (
            {"model_transaction_policy": {"decoupled": False}},
            "set_model_transaction_policy",
            {"decoupled": True},
            (
                "trying to change decoupled property in auto-complete-config for model 'm', which is already set to "
                "'False'."
            ),
        ),
        (
            {},
            "set_model_transaction_policy",
            {"coupled": True},
            (
                "model transaction property in auto-complete-config function for model 'm' contains property other "
                "than 'decoupled'."
            ),
        ),
        (
            {},
            "add_input",
            {"data_type": "TYPE_FP32", "dims": [4]},
            "input in auto-complete-config function for model 'm' is missing 'name' property.",
        ),
        (
            {},
            "add_input",
            {"name": "IN", "dims": [4]},
            "input 'IN' in auto-complete-config function for model 'm' is missing 'data_type' property.",
        ),
        (
            {},
            "add_output",
            {"name": "OUT", "data_type": "TYPE_FP32"},
            "output 'OUT' in auto-complete-config function for model 'm' is missing 'dims' property.",
        ),
        (
            {},
            "add_input",
            {**INPUT, "is_shape_tensor": True},
            (
                "input 'IN' in auto-complete-config function for model 'm' contains property other than 'name', "
                "'data_type', 'dims' and 'optional'."
            ),
        ),
        (
            {},
            "add_output",
            {**OUTPUT, "optional": True},
            (
                "output 'OUT' in auto-complete-config function for model 'm' contains property other than 'name', "
                "'data_type' and 'dims'."
            ),
        ),
        (
            {"input": [INPUT]},
            "add_input",
            {**INPUT, "data_type": "TYPE_INT32"},
            (
                "unable to load model 'm', configuration expects datatype TYPE_FP32 for input 'IN', model provides "
                "TYPE_INT32"
            ),
        ),
        (
            {"output": [OUTPUT]},
            "add_output",
            {**OUTPUT, "dims": [16]},
            "model 'm', tensor 'OUT': the model expects dims [16] but the model configuration specifies dims [4]",
        ),
    ],
)
def test_what_contradicts_is_refused(fields: dict[str, Any], verb: str, argument: Any, text: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - its text is compared
        getattr(config(**fields), verb)(argument)
    assert str(raised.value) == text


@pytest.mark.parametrize("other", ["sequence_batching", "ensemble_scheduling"])
def test_another_scheduler_stays(other: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - its text is compared
        config(**{other: {}}).set_dynamic_batching()
    assert str(raised.value) == (
        f"Configuration specified scheduling_choice as '{other}', but auto-complete-config function for model 'm' "
        "tries to set scheduling_choice as 'dynamic_batching'"
    )


class Completing:
    @staticmethod
    def auto_complete_config(auto_complete_model_config: ModelConfig) -> ModelConfig:
        auto_complete_model_config.add_input(INPUT)
        return auto_complete_model_config


class Forgetful:
    @staticmethod
    def auto_complete_config(auto_complete_model_config: ModelConfig) -> None:
        auto_complete_model_config.add_input(INPUT)


def test_a_class_completes_its_configuration() -> None:
    assert json.loads(auto_complete(Completing, '{"name": "m"}'))["input"] == [INPUT]


def test_a_class_that_completes_nothing_leaves_the_configuration() -> None:
    assert auto_complete(object, '{"name": "m"}') == '{"name": "m"}'


def test_a_configuration_has_to_be_returned() -> None:
    with pytest.raises(TritonModelException) as raised:
        auto_complete(Forgetful, '{"name": "m"}')
    text = "auto_complete_config function in model 'm' must return a valid pb.ModelConfig object."
    assert str(raised.value) == text
