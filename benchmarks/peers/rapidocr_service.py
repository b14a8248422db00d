"""The reader as a service of BentoML on RapidOCR: a worker for each core, a thread for each model, its own batches."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import bentoml
from rapidocr import RapidOCR

WORKERS = os.cpu_count() or 1


@bentoml.service(name="Reader", workers=WORKERS, traffic={"timeout": 600})
class Reader:
    def __init__(self) -> None:
        logging.disable(logging.CRITICAL)
        threads = {f"EngineConfig.onnxruntime.{kind}_op_num_threads": 1 for kind in ("intra", "inter")}
        self._read = RapidOCR(params=threads)

    @bentoml.api
    def read(self, document: Path) -> list[str]:
        return list(self._read(document).txts or ())
