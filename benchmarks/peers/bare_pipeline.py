"""OpenVINO GenAI's pipeline by itself: python bare_pipeline.py ORDER, which is JSON; prints what it measured"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import openvino_genai as genai


def measure(pipeline: Any, prompts: list[str], tokens: int) -> tuple[float, float]:  # noqa: ANN401 - no types of its
    """Tokens per second of all prompts together, and the usual time of a step in seconds"""
    config = genai.GenerationConfig()
    config.max_new_tokens, config.ignore_eos = tokens, True
    tokenizer = pipeline.get_tokenizer()
    ids = [tokenizer.encode(prompt).input_ids for prompt in prompts]
    begun = time.perf_counter()
    handles = [pipeline.add_request(number, each, config) for number, each in enumerate(ids)]
    made, steps = 0, []
    while pipeline.has_non_finished_requests():
        before = time.perf_counter()
        pipeline.step()
        steps.append(time.perf_counter() - before)
        for handle in handles:
            while handle.can_read():
                made += sum(len(output.generated_ids) for output in handle.read().values())
    return made / (time.perf_counter() - begun), statistics.median(steps)


def main() -> None:
    order = json.loads(sys.argv[1])
    scheduler = genai.SchedulerConfig()
    for name, value in order["scheduler"].items():
        setattr(scheduler, name, value)
    pipeline = genai.ContinuousBatchingPipeline(order["path"], scheduler, "CPU", order["properties"])
    measure(pipeline, ["once upon a time"], 4)
    # as the server's are, which are pinned once it serves
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), {order["core"]})
    for crowd in order["crowds"]:
        rounds = [measure(pipeline, crowd, order["tokens"]) for _ in range(order["rounds"])]
        print(json.dumps([statistics.median(one[0] for one in rounds), statistics.median(one[1] for one in rounds)]))


if __name__ == "__main__":
    main()
