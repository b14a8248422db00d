import json
from itertools import pairwise
from typing import cast

import pytest

from runners.errors import ConfigInvalid
from runners.repository.ensemble import check_composing, check_steps, composing, steps_json
from runners.repository.messages import ModelConfig
from tests.unit.text import config

ENDS = """name: "e" platform: "ensemble"
input { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } output { name: "C" data_type: TYPE_FP32 dims: [ 1 ] }"""


def step(model: str, taken: str, made: str, more: str = "") -> str:
    inputs = f'input_map {{ key: "x" value: "{taken}" }}' if taken else ""
    outputs = f'output_map {{ key: "y" value: "{made}" }}' if made else ""
    return f'step {{ model_name: "{model}" model_version: -1 {inputs} {outputs} {more} }}'


def graph(*steps: str, more: str = "") -> str:
    return f"{ENDS} ensemble_scheduling {{ {' '.join(steps)} }} {more}"


BOTH = graph(step("a", "A", "B"), step("b", "B", "C"))
REFUSED = {
    ENDS: "ensemble scheduling must be set for ensemble e whose platform is ensemble",
    BOTH.replace('platform: "ensemble"', 'backend: "onnxruntime"'): (
        "ensemble scheduling cannot be set for model 'e' whose platform is not ensemble"
    ),
    graph(): "must specify 'step' for ensemble 'e'",
    graph(step("", "A", "C")): "must specify 'model_name' in step 0 of ensemble 'e'",
    graph(step("a", "A", "C"), step("a", "", "B")): "must specify 'input_map' in step 1 of ensemble 'e'",
    graph(step("a", "A", "")): "must specify 'output_map' in step 0 of ensemble 'e'",
    BOTH + "instance_group { count: 1 }": "instance group should not be specified for ensemble 'e'",
    BOTH + "optimization { }": "optimization should not be specified for ensemble 'e'",
    BOTH + "model_warmup { }": "model_warmup can not be specified for ensemble 'e'",
    BOTH.replace("model_version: -1", "model_version: 0"): "step 0 of ensemble 'e' has model_version 0, expected a",
    graph(step("a", "A", "C"), step("b", "A", "C")): (
        "ensemble tensor 'C' can appear in an output map only once for ensemble 'e' step 1"
    ),
    graph(step("a", "A", "C"), step("b", "C", "A")): (
        "ensemble tensor 'A' can appear in an output map only once for ensemble 'e' step 1"
    ),
    graph(step("a", "Z", "C")): "ensemble input 'A' for ensemble 'e' is not used",
    graph(step("a", "A", "B")): "ensemble output 'C' for ensemble 'e' is not used",
    graph(step("a", "A", "B"), step("b", "B", "C", 'input_map { key: "z" value: "Z" }')): (
        "output 'C' for ensemble 'e' is not written: at least one of its depending tensors, 'Z', is not connected"
    ),
    graph(step("a", "A", "B", 'input_map { key: "z" value: "D" }'), step("b", "B", "C"), step("c", "B", "D")): (
        "output 'C' for ensemble 'e' is not written"
    ),
    graph(step("a", "A", "C"), step("b", "A", "D")): "ensemble tensor 'D' is unused in ensemble 'e'",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_graph_that_triton_refuses_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        check_steps(config(text))
    assert str(raised.value).startswith(REFUSED[text])


@pytest.mark.parametrize(
    "text",
    [
        BOTH,
        graph(step("b", "B", "C"), step("a", "A", "B")),
        graph(step("a", "A", "B"), step("a", "A", "D"), step("b", "B", "C", 'input_map { key: "z" value: "D" }')),
    ],
)
def test_steps_in_any_order_and_in_branches_are_taken(text: str) -> None:
    check_steps(config(text))


def test_a_long_chain_in_the_wrong_order_is_taken() -> None:
    tensors = ["A", *(f"t{index}" for index in range(1000)), "C"]
    steps = [step("a", taken, made) for taken, made in pairwise(tensors)]
    check_steps(config(graph(*reversed(steps))))


def test_a_model_that_is_no_ensemble_needs_no_steps() -> None:
    check_steps(config('name: "m" backend: "onnxruntime"'))


def test_steps_are_handed_over_with_their_maps() -> None:
    pinned = step("b", "B", "C").replace("-1", "2")
    read = config(graph(step("a", "A", "B"), pinned, "max_inflight_requests: 3"))
    assert json.loads(steps_json(read)) == [
        {"model": "a", "version": None, "inputs": {"x": "A"}, "outputs": {"y": "B"}, "max_inflight_requests": 3},
        {"model": "b", "version": 2, "inputs": {"x": "B"}, "outputs": {"y": "C"}, "max_inflight_requests": 3},
    ]
    assert composing(read) == ["a", "b"]


class Watched:
    """A configuration that counts how often its inputs are gone through"""

    def __init__(self, whole: ModelConfig) -> None:
        self._whole = whole
        self.times = 0

    def __getattr__(self, name: str) -> object:
        self.times += name == "input"
        return getattr(self._whole, name)


def test_the_inputs_of_a_model_are_gone_through_once_however_many_steps_it_has() -> None:
    optional = " ".join(
        f'input {{ name: "o{index}" data_type: TYPE_FP32 dims: [ 1 ] optional: true }}' for index in range(10)
    )
    ends = "{} {{ name: '{}' data_type: TYPE_FP32 dims: [ 1 ] }}"
    model = Watched(config(f"name: 'a' {ends.format('input', 'x')} {optional} {ends.format('output', 'y')}"))
    tensors = ["A", *(f"t{index}" for index in range(100)), "C"]
    steps = [step("a", taken, made) for taken, made in pairwise(tensors)]
    models = cast("dict[str, dict[int, ModelConfig]]", {"a": {1: model}})
    assert len(check_composing(config(graph(*steps)), models, {})) == 101
    assert model.times <= 3
    without = graph(*steps[:-1], step("a", "t99", "C").replace('key: "x"', 'key: "o3"'))
    with pytest.raises(ConfigInvalid, match="in ensemble e, input x in model a is not mapped to any ensemble tensors"):
        check_composing(config(without), models, {})
