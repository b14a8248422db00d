"""
The side of the process of a generative model: a class with the surface of a Python model, around the pipeline.

A step of the pipeline keeps the interpreter to itself, so one thread does nothing else: it hands in what has arrived,
makes a step, and sends what that gave. The other end is the native crate of generative models.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
import openvino as ov
import openvino_genai as genai

from .crowd import Crowd

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["TokenModel"]

_SWITCH_SECONDS = 1e-4
"""Between two steps the thread that reads has its turn, also where a step takes less than Python's usual time"""
_LOST = 70
"""The exit code where a step fails: nothing is known of the pipeline then"""


class TokenModel:
    """What the loop of a worker calls"""

    _thread: threading.Thread | None = None

    def initialize(self, args: dict[str, str]) -> None:
        """Opens the pipeline and makes its first steps, which take longer than all others"""
        order = json.loads(args["generative"])
        self._pipeline = _open(order)
        self._warm_up()
        self._crowd = Crowd(self._pipeline, order["blocks"], order["block_tokens"])
        self._arrived: SimpleQueue[Any] = SimpleQueue()
        sys.setswitchinterval(_SWITCH_SECONDS)
        self._thread = threading.Thread(target=self._run, name="steps", daemon=True)
        self._thread.start()

    def execute(self, requests: Sequence[Any]) -> None:
        """Takes them in; the answers come from the thread of the steps"""
        for request in requests:
            self._arrived.put(request)

    def finalize(self) -> None:
        """No step follows"""
        self._arrived.put(None)
        if self._thread is not None:
            self._thread.join()

    def _warm_up(self) -> None:
        config = genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos = 2, True
        handle = self._pipeline.add_request(0, ov.Tensor(np.zeros((1, 4), np.int64)), config)
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
        handle.read()

    def _run(self) -> None:
        try:
            self._steps()
        except BaseException:  # noqa: BLE001 - whatever it is, this process is of no more use
            traceback.print_exc()
            os._exit(_LOST)

    def _steps(self) -> None:
        while True:
            for request in self._taken(wait=self._crowd.is_idle):
                if request is None:
                    return
                self._crowd.take(request)
            self._crowd.step()

    def _taken(self, *, wait: bool) -> list[Any]:
        taken = [self._arrived.get()] if wait else []
        while True:
            try:
                taken.append(self._arrived.get_nowait())
            except Empty:
                return taken


def _open(order: Mapping[str, Any]) -> genai.ContinuousBatchingPipeline:
    scheduler = genai.SchedulerConfig()
    for name, value in order["scheduler"].items():
        setattr(scheduler, name, value)
    return genai.ContinuousBatchingPipeline(order["path"], scheduler, "CPU", order["properties"])
