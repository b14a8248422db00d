import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runners.backends.onnxruntime import cuda
from tests.examples import built
from tests.serving import ROOT

PRELOAD = """
from runners.backends.onnxruntime import cuda

cuda.preload()
cuda.preload_tensorrt()
print(open("/proc/self/maps").read())
"""


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    cuda._found.cache_clear()
    yield
    cuda._found.cache_clear()


def test_without_a_driver_there_is_no_gpu_and_the_reason_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_DRIVER", "libcuda-missing.so.1")
    assert cuda.gpus() == ()
    assert cuda.why_none().startswith("the driver of NVIDIA cannot be loaded: libcuda-missing.so.1: cannot open")


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
    assert cuda.gpus() == gpus
    assert gpus or cuda.why_none() == why


def test_libraries_of_packages_are_opened_before_a_session_asks_for_them(tmp_path: Path) -> None:
    wanted = ["nvidia/cu13/lib/libcudart.so.13", "nvidia/cudnn/lib/libcudnn.so.9", "tensorrt_libs/libnvinfer.so.10"]
    for name in wanted:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(built("kushi_custom_op"), path)
    (tmp_path / "nvidia/cu13/lib/libcublas.so.13").write_text("not a library")
    done = subprocess.run(
        [sys.executable, "-c", PRELOAD],
        cwd=ROOT,
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert [name for name in wanted if str(tmp_path / name) in done.stdout] == wanted
    assert f"'{tmp_path}/nvidia/cu13/lib/libcublas.so.13' cannot be loaded" in done.stderr
