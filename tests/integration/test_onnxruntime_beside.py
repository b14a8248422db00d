"""The onnxruntime package and the engine in one process, whichever comes first."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests import models

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import json, sys, urllib.request
import numpy as np

repository = sys.argv[1]
INPUTS = {name: np.arange(16, dtype=np.int32).reshape(1, 16) for name in ("INPUT0", "INPUT1")}

def in_python():
    import onnxruntime
    session = onnxruntime.InferenceSession(f"{repository}/add_sub/1/model.onnx", providers=["CPUExecutionProvider"])
    total, difference = session.run(None, INPUTS)
    assert total.tolist() == [list(range(0, 32, 2))] and not difference.any()

def in_the_engine():
    from runners import Engine
    with Engine(repository) as engine:
        assert not engine.failures, engine.failures
        port = engine.serve_http(port=0)
        same = {"datatype": "INT32", "shape": [1, 16], "data": list(range(16))}
        body = json.dumps({"inputs": [{"name": name, **same} for name in INPUTS]}).encode()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/add_sub/infer", body) as response:
            outputs = {output["name"]: output["data"] for output in json.load(response)["outputs"]}
        assert outputs == {"OUTPUT0": list(range(0, 32, 2)), "OUTPUT1": [0] * 16}

for part in sys.argv[2:]:
    {"python": in_python, "engine": in_the_engine}[part]()
"""


@pytest.mark.parametrize("order", [("python", "engine", "python"), ("engine", "python", "engine")])
def test_the_package_and_the_engine_do_each_other_no_harm(tmp_path: Path, order: tuple[str, ...]) -> None:
    models.write_add_sub(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(tmp_path), *order],
        check=False,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert ran.returncode == 0, ran.stderr
