"""How much Python a batch of a TensorRT plan costs: CPU of the thread that begins it, and of the one that waits for it.

    make test-tensorrt   # makes what stands in for NVIDIA's libraries
    LD_LIBRARY_PATH=build/stand-in PYTHONPATH=tests/tensorrt/stand_in python -m benchmarks.plan_cost

The driver stands in for CUDA's, and so does a part of TensorRT's module, in Python, whose share is in the figures. So
they say what a batch costs at most beside the GPU, and nothing about a GPU.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from kushi_native import PythonModel

from runners.backends.fitting import fit
from runners.repository.layout import scan
from runners.repository.resolve import resolve

__all__ = ["main"]

BATCHES = 500
REPEATS = 5
ROWS = (1, 8)


def main() -> int:
    try:
        from tests.tensorrt.plans import ADD_SUB, ONE_GPU, write  # noqa: PLC0415 - TensorRT may be missing
    except ImportError as error:
        sys.stderr.write(
            f"{error}: it needs what stands in for NVIDIA's libraries, which is made by: make test-tensorrt\n"
        )
        return 2
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder)
        write(repository, "m", ADD_SUB, ONE_GPU)
        (source,) = scan([repository]).models
        config = resolve(source, auto_complete=True).config
        (session,) = fit(source, config, 1, auto_complete=True, settings={}).bound.sessions(1)
        assert isinstance(session, PythonModel)
        engine = session.engine
        for rows in ROWS:
            found = [_once(engine, rows) for _ in range(REPEATS)]
            begin, wait = (median(times) for times in zip(*found, strict=True))
            print(f"{rows} row(s): {begin:.0f} us to begin a batch, {wait:.0f} us to take its answer")
    return 0


def _once(engine: Any, rows: int) -> tuple[float, float]:  # noqa: ANN401 - that of a Python model
    """Microseconds of CPU of both threads' parts, for one batch"""
    array = np.ones((rows, 2), np.float32)
    begin = wait = 0.0
    for _ in range(BATCHES):
        started = time.thread_time()
        batch = engine.execute([array, array], [True, True])
        begun = time.thread_time()
        batch.wait()
        begin += begun - started
        wait += time.thread_time() - begun
    return begin / BATCHES * 1e6, wait / BATCHES * 1e6


if __name__ == "__main__":
    sys.exit(main())
