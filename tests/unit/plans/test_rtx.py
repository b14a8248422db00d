"""Plans of TensorRT for RTX where that library is not."""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING

import pytest

from runners.cli import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tensorrt_rtx", "tensorrt_rtx_bindings"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "runners.plans.rtx.library", raising=False)


def test_a_build_says_what_to_install(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "model.onnx"
    source.write_bytes(b"a model")
    assert main(["export", str(source), "--to", "tensorrt-rtx", "--output", str(tmp_path / "model.plan")]) == 1
    assert "pip install 'kushi[tensorrt-rtx]'" in capsys.readouterr().err


def test_who_wrote_a_plan_is_shown_all_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.plan"
    path.write_bytes(struct.pack("<4sI16x4B", b"vtrt", 0, 1, 7, 1, 116) + b"more")
    assert main(["inspect", str(path)]) == 0
    out = capsys.readouterr().out
    assert "written by TensorRT-RTX 1.7.1.116" in out
    assert "not served here" in out
    assert "cannot be opened here: TensorRT-RTX is not here" in out
