import pytest

from runners.errors import ConfigInvalid
from runners.repository.messages import ModelConfig
from runners.repository.sizes import stated_sizes
from tests.unit.text import config


def model(value: str) -> ModelConfig:
    return config(f'name: "m" parameters {{ key: "sizes" value {{ string_value: "{value}" }} }}')


def test_sizes_are_in_order_and_each_once() -> None:
    assert stated_sizes(model("8, 1,4,4"), "sizes") == (1, 4, 8)
    assert stated_sizes(config('name: "m"'), "sizes") == ()


@pytest.mark.parametrize("text", ["", "1,,2", "0", "-1", "many", "1;2", ",".join(map(str, range(1, 66)))])
def test_sizes_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="parameter 'sizes' of model 'm': expected at most 64 sizes"):
        stated_sizes(model(text), "sizes")
