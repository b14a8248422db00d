"""Raw ONNX Runtime: the time that no server can go below. One session, N threads that only call Run on bound buffers.

    python -m benchmarks.floor --model convnet --threads 2 --rows 1 --seconds 5

Runs in a process of its own, so that it can be pinned and its CPU time read; prints one JSON line. `cores` near
`threads` proves that the floor saturates: the GIL is free while ONNX Runtime works.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

import onnxruntime

from benchmarks.models import MODELS, inputs, model_file
from benchmarks.options import ROOT

__all__ = ["Floor", "measure"]

WARMUP_S = 0.3


@dataclass(frozen=True)
class Floor:
    runs_per_second: float
    cpu_us_per_run: float
    cores: float


def measure(model: str, *, threads: int, rows: int, seconds: float, core: int | None = None) -> Floor:
    command = [sys.executable, "-m", "benchmarks.floor", "--model", model, "--threads", str(threads)]
    command += ["--rows", str(rows), "--seconds", str(seconds)]
    if core is not None:
        command += ["--core", str(core)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return Floor(**json.loads(done.stdout))


class _Caller(threading.Thread):
    def __init__(self, session: onnxruntime.InferenceSession, model: str, rows: int) -> None:
        super().__init__(daemon=True)
        self.runs = 0
        self.stopping = False
        self._session = session
        self._binding = session.io_binding()
        self._inputs = inputs(model, rows)
        for name, values in self._inputs.items():
            self._binding.bind_cpu_input(name, values)
        for name, _ in MODELS[model].outputs:
            self._binding.bind_output(name)

    def run(self) -> None:
        execute, binding = self._session.run_with_iobinding, self._binding
        while not self.stopping:
            execute(binding)
            self.runs += 1


def _measure_here(model: str, threads: int, rows: int, seconds: float) -> Floor:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model_file(model)), options, providers=["CPUExecutionProvider"])
    callers = [_Caller(session, model, rows) for _ in range(threads)]
    for caller in callers:
        caller.start()
    time.sleep(WARMUP_S)
    runs, started, cpu = sum(caller.runs for caller in callers), time.monotonic(), time.process_time()
    time.sleep(seconds)
    runs = sum(caller.runs for caller in callers) - runs
    elapsed, cpu = time.monotonic() - started, time.process_time() - cpu
    for caller in callers:
        caller.stopping = True
    for caller in callers:
        caller.join()
    return Floor(runs / elapsed, cpu / runs * 1e6, cpu / elapsed)


def _main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--model", required=True, choices=sorted(MODELS))
    flags.add_argument("--threads", type=int, default=1)
    flags.add_argument("--rows", type=int, default=1, help="rows in one run")
    flags.add_argument("--seconds", type=float, default=5)
    flags.add_argument("--core", type=int, help="pin to this core")
    given = flags.parse_args()
    if given.core is not None:
        os.sched_setaffinity(0, {given.core})
    print(json.dumps(vars(_measure_here(given.model, given.threads, given.rows, given.seconds))))


if __name__ == "__main__":
    _main()
