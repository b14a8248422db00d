"""What the process of a generative model says of its steps."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.generative import write_model
from tests.serving import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PROMPT_TOKENS, STEP_TOKENS, ANSWER_TOKENS = 100, 8, 5
PROGRAM = """
import json, sys
import numpy as np, openvino_genai as genai
import triton_python_backend_utils as pb_utils
from runners.backends.openvino_genai.crowd import Crowd

path, prompt_tokens, step_tokens, answer_tokens = json.loads(sys.argv[1])
scheduler = genai.SchedulerConfig()
scheduler.num_kv_blocks, scheduler.max_num_batched_tokens = 64, step_tokens
scheduler.enable_prefix_caching = False
pipeline = genai.ContinuousBatchingPipeline(path, scheduler, "CPU", {})
said = []

class Sender:
    def send(self, response=None, flags=0):
        said.append([response.output_tensors()[0].as_numpy().size, flags])

class Asked(pb_utils.InferenceRequest):
    def get_response_sender(self):
        return Sender()

order = json.dumps({"max_new_tokens": answer_tokens, "ignore_eos": True})
inputs = [
    pb_utils.Tensor("PROMPT", np.zeros((1, prompt_tokens), np.int32)),
    pb_utils.Tensor("ORDER", np.array([[order.encode()]], object)),
]
crowd = Crowd(pipeline, 63, 32)
crowd.take(Asked(request_id="1", inputs=inputs, requested_output_names=["TOKENS"], model_name="m"))
steps = []
while not crowd.is_idle:
    crowd.step()
    steps.append(said[:])
    said.clear()
print(json.dumps(steps))
"""


def test_each_step_says_something_and_those_that_read_a_prompt_that_there_is_nothing_yet(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.gguf")
    order = json.dumps([str(path), PROMPT_TOKENS, STEP_TOKENS, ANSWER_TOKENS])
    places = [str(ROOT), str(ROOT / "runners" / "worker" / "importable")]
    program = f"import sys\nsys.path[:0] = {places!r}\n{PROGRAM}"
    done = subprocess.run([sys.executable, "-c", program, order], stdout=subprocess.PIPE, text=True, check=True)
    steps = json.loads(done.stdout.splitlines()[-1])
    reading = -(-PROMPT_TOKENS // STEP_TOKENS) - 1
    assert steps == [[[0, 0]]] * reading + [[[1, 0]]] * (ANSWER_TOKENS - 1) + [[[1, 1]]]
