import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.errors import ConfigInvalid, Unsupported
from runners.repository.cores import check_cores, core_sets, cores_of_instances, cores_together, written
from runners.repository.messages import ModelConfig
from runners.repository.normalize import fill_instance_groups
from runners.repository.supported_fields import check_supported_fields
from tests.unit.text import ONNX, config


def with_cores(text: str, groups: str = "instance_group { kind: KIND_CPU count: 2 }") -> ModelConfig:
    parameter = f'parameters {{ key: "kushi.cores" value {{ string_value: "{text}" }} }}'
    return fill_instance_groups(config(f"{ONNX} {groups} {parameter}"))


@pytest.mark.parametrize(
    ("text", "sets"),
    [
        ("0", ((0,),)),
        ("0-3,8", ((0, 1, 2, 3, 8),)),
        ("8, 1-2,2", ((1, 2, 8),)),
        ("0-3;4-7", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("1 ; 0", ((1,), (0,))),
    ],
)
def test_cores_are_numbers_and_ranges_in_one_set_or_several(text: str, sets: tuple[tuple[int, ...], ...]) -> None:
    assert core_sets(with_cores(text)) == sets


@pytest.mark.parametrize("text", ["", "a", "3-1", "0;", "0,,1", "-1", "0-", "1024", "0-99999999999", "0:1", "\u0661"])
def test_what_are_no_cores_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        check_supported_fields(with_cores(text))
    assert str(raised.value) == (
        "parameter 'kushi.cores' of model 'm': expected cores as in '0-3,8' for all instances, or '0-3;4-7' with a set "
        f"for each, got '{text}'"
    )


def test_a_text_that_is_too_long_is_refused_before_it_is_read() -> None:
    with pytest.raises(ConfigInvalid, match="has 720000 characters, expected at most 65536"):
        check_supported_fields(with_cores("0-1023;;" * 90_000))


def test_one_set_is_that_of_every_instance_and_several_are_in_the_order_of_the_groups() -> None:
    groups = "instance_group [ { kind: KIND_CPU count: 1 }, { kind: KIND_CPU count: 2 } ]"
    assert cores_of_instances(with_cores("0-1", groups)) == ((0, 1),) * 3
    assert cores_of_instances(with_cores("0;1;0-1", groups)) == ((0,), (1,), (0, 1))
    assert cores_of_instances(fill_instance_groups(config(ONNX))) == ()


def test_as_many_sets_as_instances_are_expected() -> None:
    with pytest.raises(ConfigInvalid) as raised:
        cores_of_instances(with_cores("0;1;2"))
    assert str(raised.value) == (
        "parameter 'kushi.cores' of model 'm' has 3 sets of cores and the model 2 instance(s), expected one set for "
        "all, or one for each"
    )


def test_cores_that_the_process_may_not_use_are_named() -> None:
    check_cores(with_cores("0-1,3"), {0, 1, 2, 3})
    with pytest.raises(ConfigInvalid) as raised:
        check_cores(with_cores("0-2,8;3,64-66"), {0, 1, 3, 8})
    assert str(raised.value) == (
        "parameter 'kushi.cores' of model 'm': this process may not use the cores 2,64-66, it may use 0-1,3,8"
    )


def test_an_ensemble_has_no_cores() -> None:
    ensemble = 'name: "m" platform: "ensemble" parameters { key: "kushi.cores" value { string_value: "0" } }'
    with pytest.raises(Unsupported, match=r"parameter 'kushi.cores' of model 'm': an ensemble executes nothing by"):
        check_supported_fields(config(ensemble))


@pytest.mark.parametrize(
    ("sets", "usable", "cores"),
    [
        pytest.param([], 8, 8, id="where none are stated, the quota"),
        pytest.param([(0, 1, 2, 3)] * 2, 8, 4, id="one set is for all together"),
        pytest.param([(0, 1), (2, 3)], 8, 4, id="sets that are apart add up"),
        pytest.param([(0, 1), (0, 1)], 8, 2, id="sets that are the same do not"),
        pytest.param([(0,), (1, 2, 3)], 8, 2, id="none has more threads than the smallest has cores"),
        pytest.param([(0, 1), (2, 3)], 3, 3, id="the quota holds"),
    ],
)
def test_cores_together(sets: list[tuple[int, ...]], usable: int, cores: int) -> None:
    assert cores_together(sets, usable) == cores


@given(st.sets(st.integers(0, 1023), min_size=1))
def test_cores_are_written_as_they_are_stated(cores: set[int]) -> None:
    ascending = tuple(sorted(cores))
    assert core_sets(with_cores(written(ascending))) == (ascending,)
