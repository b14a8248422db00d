"""A program that uses grpcio and has models in processes: its library has something to do around every fork"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final

from tests.integration.python_models import models as python_models
from tests.serving import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM: Final = """
import sys
import grpc
from runners import Engine

with Engine() as first:
    with grpc.insecure_channel(f"127.0.0.1:{first.serve_grpc(port=0)}") as channel:
        ask = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        ask(b"", timeout=20)
        for _ in range(5):
            with Engine(sys.argv[1]) as engine:
                assert len(list(engine.get_model_repository_index())) == 4
            ask(b"", timeout=20)
print("all is well")
"""


def test_many_processes_begin_at_the_same_time_beside_grpcio(repository: Path) -> None:
    for name in ("one", "two", "three", "four"):
        python_models.write(repository, name, python_models.ADD_SUB, python_models.ADD_SUB_CONFIG)
    command = [sys.executable, "-c", PROGRAM, str(repository)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stdout) == (0, "all is well\n"), ended.stderr
