"""A server whose log nobody takes any more: what it serves goes on, and so does its end."""

from __future__ import annotations

import re
import signal
import subprocess
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient
from tritonclient.utils import InferenceServerException

from tests import models
from tests.integration.python_models import models as python_models
from tests.integration.python_models.test_models import pair, tensor
from tests.serving import command, environment

if TYPE_CHECKING:
    from pathlib import Path

FAILING = """
class TritonPythonModel:
    def execute(self, requests):
        raise ValueError("x" * 2000)
"""
MORE_THAN_A_PIPE_TAKES = 100


@pytest.mark.clock
def test_a_log_that_nobody_reads_keeps_no_request_and_no_end(tmp_path: Path) -> None:
    python_models.write(tmp_path, "failing", FAILING, python_models.FAULTY_CONFIG)
    models.write_add_sub(tmp_path)
    arguments = [f"--model-repository={tmp_path}", "--http-address=127.0.0.1", "--http-port=0", "--allow-metrics=false"]
    with subprocess.Popen(command(arguments), env=environment(), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        port = 0
        for line in process.stderr:
            if found := re.search(r"HTTPService at [^:]+:(\d+)", line):
                port = int(found[1])
            if "] ready in" in line:
                break
        try:
            with InferenceServerClient(f"127.0.0.1:{port}", network_timeout=10) as client:
                word = tensor("WHAT", np.array([b"?"], np.object_))
                for _ in range(MORE_THAN_A_PIPE_TAKES):
                    with pytest.raises(InferenceServerException, match="ValueError: x"):
                        client.infer("failing", [word])
                assert client.is_server_live()
                ones = np.ones((1, 16), np.int32)
                assert client.infer("add_sub", pair(ones, ones)).as_numpy("OUTPUT0").tolist() == [[2] * 16]
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
