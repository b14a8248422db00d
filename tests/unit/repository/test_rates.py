"""What the instances of a model need of the rate limiter"""

import logging

import pytest

from runners.errors import ConfigInvalid
from runners.repository.normalize import fill_instance_groups
from runners.repository.rates import rates_of_instances
from runners.repository.supported_fields import check_supported_fields
from runners.repository.validate import check_model
from tests.unit.text import ONNX, config

LIMITS = 'rate_limiter { resources [ { name: "r" count: 4 }, { name: "g" global: true count: 2 } ] priority: 3 }'


def rates(groups: str) -> list[tuple[int | None, int, list[tuple[str, bool, int]]]]:
    read = config(f"{ONNX} {groups}")
    check_supported_fields(read)
    return [
        (one.device, one.priority, [(it.name, it.is_global, it.count) for it in one.resources])
        for one in rates_of_instances(fill_instance_groups(read, [0, 1]))
    ]


def test_each_instance_needs_what_its_group_says_on_its_device() -> None:
    asked = [("r", False, 4), ("g", True, 2)]
    groups = f"instance_group [ {{ kind: KIND_GPU count: 2 {LIMITS} }}, {{ kind: KIND_CPU count: 1 }} ]"
    assert rates(groups) == [(0, 3, asked), (0, 3, asked), (1, 3, asked), (1, 3, asked), (None, 0, [])]
    assert rates(f"instance_group {{ kind: KIND_MODEL count: 1 {LIMITS} }}") == [(None, 3, asked)]


def test_instances_of_a_group_share_what_they_need() -> None:
    read = fill_instance_groups(config(f"{ONNX} instance_group {{ kind: KIND_CPU count: 1000 {LIMITS} }}"), [])
    rates = rates_of_instances(read)
    assert (len(rates), len({id(one) for one in rates})) == (1000, 1)


@pytest.mark.parametrize(
    ("resources", "fault"),
    [
        ('resources { name: "r" } ' * 65, "has 65 resources, expected at most 64"),
        (f'resources {{ name: "{"r" * 257}" }}', "has a name of 257 characters, expected at most 256"),
    ],
    ids=["many", "long"],
)
def test_more_resources_than_an_instance_has_are_refused(resources: str, fault: str) -> None:
    groups = f"instance_group [ {{ {LIMITS} }}, {{ rate_limiter {{ {resources} }} }} ]"
    with pytest.raises(ConfigInvalid, match=rf"^field 'instance_group\[1\]\.rate_limiter\.resources' {fault}$"):
        check_model(config(f"{ONNX} {groups}"), "m")


def test_as_many_resources_as_an_instance_may_have_pass() -> None:
    resources = " ".join(f'resources {{ name: "{number:0256}" count: 1 }}' for number in range(64))
    check_model(config(f"{ONNX} instance_group {{ rate_limiter {{ {resources} }} }}"), "m")


@pytest.mark.parametrize("groups", ["", "instance_group { }", "instance_group { rate_limiter { priority: 2 } }"])
def test_nothing_is_said_where_no_instance_needs_resources(groups: str) -> None:
    assert rates(groups) == []


def test_a_priority_without_resources_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    groups = f"instance_group [ {{ {LIMITS} }}, {{ rate_limiter {{ priority: 2 }} }}, {{ rate_limiter {{ }} }} ]"
    with caplog.at_level(logging.WARNING, "runners"):
        check_supported_fields(config(f"{ONNX} {groups}"))
    text = "model 'm': field 'instance_group[1].rate_limiter.priority' has no effect without resources"
    assert caplog.messages == [text]
