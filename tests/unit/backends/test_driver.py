from collections.abc import Iterator

import pytest

from runners.backends import driver as nvidia


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    nvidia._found.cache_clear()
    yield
    nvidia._found.cache_clear()


def test_without_a_driver_there_is_no_gpu_and_the_reason_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia, "_DRIVER", "libcuda-missing.so.1")
    assert nvidia.gpus() == ()
    assert nvidia.why_none().startswith("the driver of NVIDIA cannot be loaded: libcuda-missing.so.1: cannot open")


class Driver:
    """What the driver answers, without one"""

    def __init__(self, count: int, status: int) -> None:
        self.count = count
        self.status = status

    def cuInit(self, _: int) -> int:  # noqa: N802 - the driver's name
        return self.status

    def cuDeviceGetCount(self, place: object) -> int:  # noqa: N802
        place._obj.value = self.count  # type: ignore[attr-defined] # what ctypes.byref makes
        return 0

    def cuGetErrorName(self, _: int, place: object) -> int:  # noqa: N802
        place._obj.value = b"CUDA_ERROR_NO_DEVICE"  # type: ignore[attr-defined]
        return 0


@pytest.mark.parametrize(
    ("driver", "gpus", "why"),
    [
        (Driver(2, 0), (0, 1), ""),
        (Driver(0, 0), (), "the driver of NVIDIA shows no GPU, see CUDA_VISIBLE_DEVICES"),
        (Driver(0, 100), (), "the driver of NVIDIA shows no GPU: CUDA_ERROR_NO_DEVICE"),
    ],
)
def test_the_gpus_are_those_that_the_driver_shows(
    monkeypatch: pytest.MonkeyPatch, driver: Driver, gpus: tuple[int, ...], why: str
) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: driver)
    assert nvidia.gpus() == gpus
    assert gpus or nvidia.why_none() == why
