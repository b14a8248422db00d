"""What the flags and objects about the memory of devices take"""

import pytest

from runners import ConfigInvalid, DeviceOptions, EngineOptions
from runners.settings import read_settings


def devices(**flags: object) -> DeviceOptions:
    return read_settings(flags).engine.devices


def test_defaults_are_those_of_tritonserver() -> None:
    assert devices() == DeviceOptions()
    assert devices().pinned_memory_pool_bytes == 268435456


def test_values_are_for_each_gpu_and_the_last_one_of_a_gpu_holds() -> None:
    read = devices(
        pinned_memory_pool_byte_size="0",
        cuda_memory_pool_byte_size=["0:67108864", "1:5", "0:7"],
        model_load_gpu_limit=["0:0.75", "3:1", "2:.5"],
    )
    assert read == DeviceOptions(
        pinned_memory_pool_bytes=0,
        cuda_memory_pool_bytes={0: 7, 1: 5},
        model_load_gpu_limits={0: 0.75, 3: 1.0, 2: 0.5},
    )


def test_a_variable_takes_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUSHI_MODEL_LOAD_GPU_LIMIT", "0:0.5,1:0.25")
    assert devices().model_load_gpu_limits == {0: 0.5, 1: 0.25}


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("pinned_memory_pool_byte_size", "-1", "an integer from 0 to 9223372036854775807"),
        ("cuda_memory_pool_byte_size", "64", "GPU:BYTES, the number of a GPU and a number of bytes"),
        ("cuda_memory_pool_byte_size", "0:-1", "GPU:BYTES, the number of a GPU and a number of bytes"),
        ("cuda_memory_pool_byte_size", "a:1", "GPU:BYTES, the number of a GPU and a number of bytes"),
        ("model_load_gpu_limit", "0", "GPU:FRACTION, the number of a GPU and a number from 0 to 1"),
        ("model_load_gpu_limit", "0:1.5", "GPU:FRACTION, the number of a GPU and a number from 0 to 1"),
        ("model_load_gpu_limit", "0:nan", "GPU:FRACTION, the number of a GPU and a number from 0 to 1"),
        ("model_load_gpu_limit", "-1:0.5", "GPU:FRACTION, the number of a GPU and a number from 0 to 1"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_expected(flag: str, value: str, expected: str) -> None:
    given = [value] if flag != "pinned_memory_pool_byte_size" else value
    with pytest.raises(ConfigInvalid) as raised:
        devices(**{flag: given})
    assert str(raised.value) == f"--{flag.replace('_', '-')}: expected {expected}, got '{value}'"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            DeviceOptions(model_load_gpu_limits={0: 2}),
            (
                "devices.model_load_gpu_limits is {0: 2}, expected {GPU: FRACTION} with numbers of GPUs, and for each "
                "a number from 0 to 1"
            ),
        ),
        (
            DeviceOptions(cuda_memory_pool_bytes={"0": 1}),  # type: ignore[dict-item] # the point
            (
                "devices.cuda_memory_pool_bytes is {'0': 1}, expected {GPU: BYTES} with numbers of GPUs, and for each "
                "a number of bytes"
            ),
        ),
        (
            DeviceOptions(pinned_memory_pool_bytes=-1),
            "devices.pinned_memory_pool_bytes is -1, expected an integer from 0 to 9223372036854775807",
        ),
    ],
)
def test_a_wrong_object_is_refused_with_what_is_expected(options: DeviceOptions, text: str) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        EngineOptions(devices=options)
    assert str(raised.value) == text
