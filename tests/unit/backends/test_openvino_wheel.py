"""Two packages that carry the same library, in one process."""

from pathlib import Path

import pytest

from runners.backends.openvino_wheel import check_alone
from runners.errors import Unsupported


def mapped(path: str) -> str:
    return f"7f10a2c00000-7f10a2c20000 r--p 00000000 fe:00 1201 {' ' * 20}{path}"


def test_one_version_may_come_from_two_packages(tmp_path: Path) -> None:
    (tmp_path / "libopenvino.so.2641").touch()
    check_alone(tmp_path, [])
    check_alone(
        tmp_path, [mapped("/elsewhere/libopenvino.so.2641"), mapped("/elsewhere/libtbb.so.12"), "7f-8f rw-p 0 0:0 0"]
    )


def test_another_version_is_refused_with_both_places(tmp_path: Path) -> None:
    (tmp_path / "libopenvino.so.2641").touch()
    with pytest.raises(Unsupported) as raised:
        check_alone(tmp_path, [mapped("/else where/libopenvino.so.2540")])
    assert str(raised.value) == (
        f"'{tmp_path}' has libopenvino.so.2641, and this process has libopenvino.so.2540 of '/else where': "
        "openvino and onnxruntime-ep-openvino have to be of the same OpenVINO"
    )
