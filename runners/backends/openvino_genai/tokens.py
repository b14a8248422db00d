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
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
import openvino as ov
import openvino_genai as genai

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["TokenModel"]

# that of the worker, which is no part of a package there
_API: Any = import_module("triton_python_backend_utils")

_FINAL = _API.TRITONSERVER_RESPONSE_COMPLETE_FINAL
_SWITCH_SECONDS = 1e-4
"""Between two steps the thread that reads has its turn, also where a step takes less than Python's usual time"""
_STOP, _LENGTH = 0, 1
_LOST = 70
"""The exit code where a step fails: nothing is known of the pipeline then"""


class TokenModel:
    """What the loop of a worker calls"""

    _thread: threading.Thread | None = None

    def initialize(self, args: dict[str, str]) -> None:
        """Opens the pipeline and makes its first steps, which take longer than all others"""
        order = json.loads(args["generative"])
        self._pipeline = _open(order)
        self._numbers = 0
        self._arrived: SimpleQueue[Any] = SimpleQueue()
        self._warm_up()
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
        handle = self._add([0] * 4, config)
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
        handle.read()

    def _add(self, prompt: Sequence[int], config: genai.GenerationConfig) -> Any:  # noqa: ANN401 - no type of its
        self._numbers += 1
        ids = np.array([prompt], np.int64)
        return self._pipeline.add_request(self._numbers, ov.Tensor(ids), config)

    def _run(self) -> None:
        try:
            self._steps()
        except BaseException:  # noqa: BLE001 - whatever it is, this process is of no more use
            traceback.print_exc()
            os._exit(_LOST)

    def _steps(self) -> None:
        running: dict[str, _Generation] = {}
        while True:
            for request in self._taken(wait=not running):
                if request is None:
                    return
                self._take(request, running)
            if self._pipeline.has_non_finished_requests():
                self._pipeline.step()
            for number, generation in [*running.items()]:
                if generation.has_ended():
                    del running[number]

    def _taken(self, *, wait: bool) -> list[Any]:
        taken = [self._arrived.get()] if wait else []
        while True:
            try:
                taken.append(self._arrived.get_nowait())
            except Empty:
                return taken

    def _take(self, request: Any, running: dict[str, _Generation]) -> None:  # noqa: ANN401 - of the worker
        """Begins it. One without an order says that the one of its id is to be given up"""
        number, sender = request.request_id(), request.get_response_sender()
        prompt, order = (_API.get_input_tensor_by_name(request, name).as_numpy() for name in ("PROMPT", "ORDER"))
        text = order.reshape(-1)[0]
        if not text:
            if number in running:
                running.pop(number).give_up()
            sender.send(flags=_FINAL)
            return
        try:
            running[number] = _Generation(sender, self._add(prompt.reshape(-1).tolist(), _config(json.loads(text))))
        except Exception as error:  # noqa: BLE001 - of the pipeline, about what was asked
            _fail(sender, _last_line(error), _API.TritonError.INVALID_ARG)


class _Generation:
    """One request that the pipeline has"""

    def __init__(self, sender: Any, handle: Any) -> None:  # noqa: ANN401 - of the worker and the pipeline
        self._sender = sender
        # the request is cancelled with the last reference to it
        self._handle = handle

    def give_up(self) -> None:
        """Nobody waits for it any more; its memory is free with the next step"""
        self._handle.cancel()
        self._sender.send(flags=_FINAL)

    def has_ended(self) -> bool:
        """Sends what the last step gave"""
        status = self._handle.get_status()
        steps: list[Any] = []
        while self._handle.can_read():
            steps.extend(self._handle.read().values())
        if status == genai.GenerationStatus.RUNNING:
            return not all(self._has_left(output) for output in steps)
        if status == genai.GenerationStatus.FINISHED and steps:
            if all(self._has_left(output) for output in steps[:-1]):
                self._sender.send(_response(steps[-1]), flags=_FINAL)
        elif status == genai.GenerationStatus.IGNORED:
            _fail(self._sender, "the cache of the model has no room for the request", _API.TritonError.UNAVAILABLE)
        else:
            _fail(self._sender, f"the pipeline ended the request: {status.name}", _API.TritonError.INTERNAL)
        return True

    def _has_left(self, output: Any) -> bool:  # noqa: ANN401 - of the pipeline
        """False: nobody waits for it any more, who may have said so while it waited for room"""
        try:
            self._sender.send(_response(output))
        except _API.TritonModelException:
            self.give_up()
            return False
        return True


def _fail(sender: Any, text: str, code: int) -> None:  # noqa: ANN401 - of the worker
    sender.send(_API.InferenceResponse(error=_API.TritonError(text, code)), flags=_FINAL)


def _open(order: Mapping[str, Any]) -> genai.ContinuousBatchingPipeline:
    scheduler = genai.SchedulerConfig()
    for name, value in order["scheduler"].items():
        setattr(scheduler, name, value)
    return genai.ContinuousBatchingPipeline(order["path"], scheduler, "CPU", order["properties"])


def _config(order: Mapping[str, Any]) -> genai.GenerationConfig:
    config = genai.GenerationConfig()
    for name, value in order.items():
        setattr(config, name, set(value) if name == "stop_token_ids" else value)
    config.validate()
    return config


def _response(output: Any) -> Any:  # noqa: ANN401 - of the pipeline and the worker
    tokens, likely = output.generated_ids, output.generated_log_probs
    if len(likely) != len(tokens):
        # nobody has asked for them
        likely = [0.0] * len(tokens)
    ends: list[int] = []
    if output.finish_reason != genai.GenerationFinishReason.NONE:
        ends.append(_LENGTH if output.finish_reason == genai.GenerationFinishReason.LENGTH else _STOP)
    return _API.InferenceResponse(
        [
            _API.Tensor("TOKENS", np.array([tokens], np.int32)),
            _API.Tensor("LOG_PROBABILITIES", np.array([likely], np.float32)),
            _API.Tensor("END", np.array([ends], np.int32)),
        ]
    )


def _last_line(error: Exception) -> str:
    """OpenVINO's texts begin with where they come from"""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
