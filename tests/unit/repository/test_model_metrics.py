"""What a configuration says of the metrics of its model"""

import pytest

from runners.errors import ConfigInvalid
from runners.repository.model_metrics import first_response_buckets, monitored_outputs, tags
from tests.unit.text import config

FAMILY = "nv_inference_first_response_histogram_ms"
OUTPUTS = (
    'name: "m" output { name: "A" data_type: TYPE_FP32 dims: 2 } output { name: "B" data_type: TYPE_FP32 dims: 2 }'
)


def control(family: str, buckets: str) -> str:
    return (
        f'name: "m" model_metrics {{ metric_control {{ metric_identifier {{ family: "{family}" }} '
        f"histogram_options {{ buckets: [ {buckets} ] }} }} }}"
    )


def monitor(outputs: str) -> str:
    return f'{OUTPUTS} parameters {{ key: "kushi.monitor" value {{ string_value: "{outputs}" }} }}'


def test_nothing_is_asked_for_by_itself() -> None:
    plain = config(OUTPUTS)
    assert (first_response_buckets(plain), monitored_outputs(plain), tags(plain)) == (None, (), ())


def test_a_model_may_have_its_own_buckets() -> None:
    assert first_response_buckets(config(control(FAMILY, "-1, 0.5, 3"))) == (-1, 0.5, 3)


def test_another_family_has_no_effect_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    assert first_response_buckets(config(control("other", "1"))) is None
    assert "'other' is no histogram of the server" in caplog.text


@pytest.mark.parametrize("buckets", ["1, 1", "2, 1", "", "nan", "1, inf", ", ".join(map(str, range(257)))])
def test_buckets_that_do_not_rise_are_refused(buckets: str) -> None:
    with pytest.raises(ConfigInvalid, match="expected 1 to 256 numbers that rise"):
        first_response_buckets(config(control(FAMILY, buckets)))


def test_a_control_without_a_family_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="names no family"):
        first_response_buckets(config(control("", "1")))


def test_monitored_outputs_are_told_by_their_positions() -> None:
    assert monitored_outputs(config(monitor("B , A,B"))) == (0, 1)


@pytest.mark.parametrize("outputs", ["", "A,", "a", "A B"])
def test_an_output_that_is_not_there_cannot_be_monitored(outputs: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"expected outputs of the model, separated by commas \(A, B\)"):
        monitored_outputs(config(monitor(outputs)))


def test_tags_become_labels() -> None:
    stated = 'metric_tags { key: "b" value: "2" } metric_tags { key: "a" value: "1" }'
    assert tags(config(stated)) == (("_a", "1"), ("_b", "2"))
    with pytest.raises(ConfigInvalid, match="'a-b' is no name of a label"):
        tags(config('name: "m" metric_tags { key: "a-b" value: "1" }'))


@pytest.mark.parametrize(
    ("count", "name", "value", "text"),
    [
        (65, "a", "1", "65 labels, expected at most 64"),
        (1, "a" * 257, "1", "has more than 256 characters"),
        (1, "a", "1" * 257, "'a0' has more than 256 characters"),
    ],
)
def test_tags_are_few_and_short(count: int, name: str, value: str, text: str) -> None:
    stated = "".join(f'metric_tags {{ key: "{name}{number}" value: "{value}" }} ' for number in range(count))
    with pytest.raises(ConfigInvalid, match=text):
        tags(config(stated))
