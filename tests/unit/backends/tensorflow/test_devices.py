"""What a process leaves TensorFlow of the GPUs of a machine; a stand-in for `tf.config` keeps TensorFlow's rules."""

from __future__ import annotations

import pytest

from runners.backends.tensorflow.devices import take_devices


class Config:
    """TensorFlow's settings of devices, as they are before it starts."""

    def __init__(self, gpus: int) -> None:
        self._gpus = [f"GPU {number}" for number in range(gpus)]
        self._seen = list(self._gpus)
        self._grows: set[str] = set()
        self.experimental = self

    def list_physical_devices(self, kind: str) -> list[str]:
        assert kind == "GPU"
        return list(self._gpus)

    def set_visible_devices(self, devices: list[str], kind: str) -> None:
        assert kind == "GPU"
        self._seen = devices

    def set_memory_growth(self, device: str, *, enable: bool) -> None:
        assert enable
        self._grows.add(device)

    def start(self) -> dict[str, str]:
        """The GPUs that operations may be on, by their names; each is one whose memory is not taken at once."""
        growths = {device in self._grows for device in self._seen}
        if len(growths) > 1:
            raise ValueError("Memory growth cannot differ between GPU devices")
        assert growths <= {True}
        return {f"/GPU:{number}": device for number, device in enumerate(self._seen)}


@pytest.mark.parametrize("gpu", range(3))
def test_an_instance_on_a_gpu_has_that_one_alone(gpu: int) -> None:
    config = Config(gpus=3)
    device = take_devices(config, gpu, by_itself=False)
    assert config.start() == {device: f"GPU {gpu}"}


@pytest.mark.parametrize("gpus", range(3))
def test_an_instance_on_the_cpu_takes_nothing_of_a_gpu(gpus: int) -> None:
    config = Config(gpus)
    assert take_devices(config, None, by_itself=False) == "/CPU:0"
    assert config.start() == {}


def test_a_model_that_chooses_its_devices_has_all_gpus() -> None:
    config = Config(gpus=2)
    assert take_devices(config, None, by_itself=True) is None
    assert config.start() == {"/GPU:0": "GPU 0", "/GPU:1": "GPU 1"}
