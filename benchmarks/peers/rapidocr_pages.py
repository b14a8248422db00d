"""RapidOCR's own pipeline in a plain script: paths come in, a line each; what was read goes out, as JSON.

rapidocr_pages.py THREADS
"""

from __future__ import annotations

import json
import logging
import sys
import time


def main() -> None:
    from rapidocr import RapidOCR  # noqa: PLC0415 - after the thread's bound

    logging.disable(logging.CRITICAL)
    threads = int(sys.argv[1])
    read = RapidOCR(
        params={
            "EngineConfig.onnxruntime.intra_op_num_threads": threads,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
        }
    )
    print(json.dumps({"ready": True}), flush=True)
    for path in sys.stdin:
        began, cpu = time.perf_counter(), time.process_time()
        answer = read(path.strip())
        taken = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
        print(json.dumps({"texts": list(answer.txts or ()), **taken}), flush=True)


if __name__ == "__main__":
    main()
