from pathlib import Path

import pytest

from runners.backends import driver
from runners.backends.device_limits import DeviceLimits
from runners.backends.pinned import PinnedBudget
from runners.errors import EngineFailed, ModelUnavailable
from runners.settings import DeviceOptions
from tests.stand_in_driver import HERE, make_cuda


def test_a_gpu_whose_used_memory_is_above_its_limit_takes_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def memory(gpu: int) -> tuple[int, int]:
        asked.append(gpu)
        return {0: 500, 1: 499, 2: 0}[gpu], 1000

    monkeypatch.setattr(driver, "memory", memory)
    limits = DeviceLimits(load_fractions={0: 0.5, 1: 0.5})
    limits.check_load("m", [None, 0, 2, 0])
    assert asked == [0], "of others nobody has said anything"
    with pytest.raises(ModelUnavailable) as raised:
        limits.check_load("m", [1, 0])
    assert str(raised.value) == (
        "can not create model 'm': memory limit set for GPU 1 has exceeded, model loading is rejected."
    )


def test_where_nobody_says_a_limit_the_budget_is_that_of_the_setting() -> None:
    assert DeviceLimits().pinned.most_bytes == DeviceOptions().pinned_memory_pool_bytes


def test_limits_go_to_another_process() -> None:
    sent = DeviceLimits.of(DeviceLimits(PinnedBudget(5), {0: 0.5}).to_plain())
    assert (sent.pinned.most_bytes, sent.load_fractions) == (5, {0: 0.5})


@pytest.fixture
def stand_in_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_DRIVER", str(make_cuda(tmp_path, HERE)))


@pytest.mark.usefixtures("stand_in_driver")
def test_the_driver_says_how_much_memory_is_free_and_how_much_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_FREE_PERCENT", "25")
    free, total = driver.memory(1)
    assert free * 4 == total > 0


@pytest.mark.usefixtures("stand_in_driver")
def test_a_driver_that_does_not_say_it_is_named_with_its_reason() -> None:
    with pytest.raises(EngineFailed, match="cannot say how much memory of GPU 2 is free: CUDA_ERROR_INVALID_DEVICE"):
        driver.memory(2)
