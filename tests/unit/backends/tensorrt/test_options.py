"""Which instances there are, and what their groups say of them."""

from __future__ import annotations

from pathlib import Path

from runners.backends.steps import Placed
from runners.backends.tensorrt.options import InstancePlace, instance_places
from runners.repository.layout import ModelSource
from tests.unit.text import config

GROUPS = """
    name: "m" backend: "tensorrt"
    instance_group { name: "a" kind: KIND_GPU count: 1 gpus: [ 0, 1 ] profile: "0" }
    instance_group { name: "b" kind: KIND_GPU gpus: 0 count: 2 profile: "1" }
"""
ALL = [
    InstancePlace("a_0", "a", 0, ("0",)),
    InstancePlace("a_1", "a", 1, ("0",)),
    InstancePlace("b_0", "b", 0, ("1",)),
    InstancePlace("b_1", "b", 0, ("1",)),
]


def placed(*places: int, instance: int | None = None) -> Placed:
    source = ModelSource("m", Path("m"), {1: Path("m/1")}, None)
    return Placed(source, 1, config(GROUPS), places, (False,) * len(places), instance)


def test_all_instances_are_there_in_the_order_of_their_groups() -> None:
    assert instance_places(placed(0, 1, 0, 0)) == ALL


def test_a_process_of_its_own_has_the_instance_that_it_is_for() -> None:
    assert [instance_places(placed(one.gpu, instance=number)) for number, one in enumerate(ALL)] == [
        [one] for one in ALL
    ]
