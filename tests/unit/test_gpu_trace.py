"""How busy a GPU was, by a trace."""

from typing import Any

import pytest

from benchmarks.gpu_trace import busy, covered


def work(category: str, begin: float, lasts: float) -> dict[str, Any]:
    return {"cat": category, "ts": begin, "dur": lasts, "name": "of no account"}


def test_spans_that_overlap_count_once() -> None:
    assert covered([]) == 0
    assert covered([(0, 2), (1, 3), (5, 6), (5, 5.5)]) == 4


def test_a_copy_beside_a_kernel_is_hidden() -> None:
    events = [
        work("gpu_memcpy", 0, 10),
        work("kernel", 10, 50),
        work("gpu_memcpy", 50, 20),
        work("kernel", 60, 40),
        work("cuda_runtime", 0, 500),
        {"ph": "M", "name": "process_name"},
    ]
    assert busy({"traceEvents": events}) == pytest.approx({"kernels": 0.9, "any": 1.0, "hidden": 20 / 30})


def test_without_a_kernel_nothing_was_busy() -> None:
    assert busy({"traceEvents": [work("gpu_memcpy", 0, 1)]})["kernels"] == 0


def test_without_copies_nothing_had_to_be_hidden() -> None:
    events = [work("kernel", 0, 1), work("kernel", 3, 1)]
    assert busy({"traceEvents": events}) == {"kernels": 0.5, "any": 0.5, "hidden": 1.0}
