"""`kushi.imports`: operators of a package that the file of a model needs."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from runners import Engine, EngineOptions
from tests.torch.models import parameter

if TYPE_CHECKING:
    from pathlib import Path

PACKAGE: Final = """
import torch
LIBRARY = torch.library.Library("kushi_test", "DEF")
LIBRARY.define("thrice(Tensor x) -> Tensor")
LIBRARY.impl("thrice", lambda x: 3 * x, "CompositeImplicitAutograd")
"""
SAVE: Final = """
import sys, torch, kushi_test_operators
class Thrice(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.kushi_test.thrice(x)
torch.jit.script(Thrice()).save(sys.argv[1])
"""
CONFIG: Final = """platform: "pytorch_libtorch"
input { name: "x" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "OUTPUT__0" data_type: TYPE_FP32 dims: [ 2 ] }
"""


def test_a_package_brings_the_operators_of_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "kushi_test_operators.py").write_text(PACKAGE)
    # in a file: TorchScript reads the source of a class, which older interpreters do not keep of `-c`
    saving = tmp_path / "save.py"
    saving.write_text(SAVE)
    texts = {
        "without": CONFIG,
        "wrong": CONFIG + parameter("kushi.imports", "no_such_package"),
        "no_name": CONFIG + parameter("kushi.imports", "os; import sys"),
        "with": CONFIG + parameter("kushi.imports", "kushi_test_operators, torch"),
    }
    for name, text in texts.items():
        (tmp_path / "models" / name / "1").mkdir(parents=True)
        (tmp_path / "models" / name / "config.pbtxt").write_text(text)
        target = tmp_path / "models" / name / "1" / "model.pt"
        command = [sys.executable, "-W", "ignore", str(saving), str(target)]
        subprocess.run(command, check=True, env={"PYTHONPATH": str(packages)})
    monkeypatch.syspath_prepend(packages)
    options = EngineOptions(exit_on_error=False)
    (tmp_path / "first").mkdir()
    (tmp_path / "models" / "without").rename(tmp_path / "first" / "without")
    with Engine(tmp_path / "first", options=options) as engine:
        assert "kushi_test::thrice" in str(engine.failures["without"])
    with Engine(tmp_path / "models", options=options) as engine:
        assert "package 'no_such_package' cannot be imported" in str(engine.failures["wrong"])
        assert "expected names of packages with commas between them" in str(engine.failures["no_name"])
        assert engine.infer("with", np.array([1, 2], np.float32))["OUTPUT__0"].tolist() == [3, 6]
