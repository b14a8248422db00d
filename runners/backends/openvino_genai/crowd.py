"""
The requests that the pipeline of a generative model has, and those for which it has no room yet.

What they ask and are answered is what the native crate of generative models writes and reads.
"""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import openvino as ov
import openvino_genai as genai

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["Crowd"]

# that of the worker, which is no part of a package there
_API: Any = import_module("triton_python_backend_utils")

_FINAL = _API.TRITONSERVER_RESPONSE_COMPLETE_FINAL
_STOP, _LENGTH = 0, 1


class Crowd:
    """
    The requests that wait and run.

    Where the pipeline lacks room for what runs, it computes some of it again, and gives up others for one that was
    cancelled. So here a request begins when there is room for all that it may need.
    """

    def __init__(self, pipeline: Any, blocks: int, block_tokens: int) -> None:  # noqa: ANN401 - no types of its
        self._pipeline = pipeline
        self._blocks_left = blocks
        self._block_tokens = block_tokens
        self._waiting: dict[str, _Waiting] = {}
        self._running: dict[str, _Generation] = {}
        self._given_up: list[_Generation] = []
        """Their blocks are free behind the next step"""
        self._begun = 0

    @property
    def is_idle(self) -> bool:
        """Whether a step would do nothing"""
        return not (self._waiting or self._running or self._given_up)

    def take(self, request: Any) -> None:  # noqa: ANN401 - of the worker
        """Has it wait for its turn. One without an order says that the one of its id is to be given up"""
        number, sender = request.request_id(), request.get_response_sender()
        try:
            prompt, order = (_API.get_input_tensor_by_name(request, name).as_numpy() for name in ("PROMPT", "ORDER"))
            text = order.reshape(-1)[0]
            if text:
                config = _config(json.loads(text))
                needed = -(-(prompt.size + config.max_new_tokens) // self._block_tokens)
                self._waiting[number] = _Waiting(sender, prompt.reshape(1, -1).astype(np.int64), config, needed)
                return
        except Exception as error:  # noqa: BLE001 - of the pipeline, about what was asked
            _fail(sender, _last_line(error), _API.TritonError.INVALID_ARG)
            return
        sender.send(flags=_FINAL)
        if number in self._waiting:
            self._waiting.pop(number).sender.send(flags=_FINAL)
        elif number in self._running:
            self._give_up(number)

    def step(self) -> None:
        """One of the pipeline, with all for which there is room, and what it gave is sent"""
        self._begin()
        self._pipeline.step()
        for generation in self._given_up:
            self._blocks_left += generation.blocks
        self._given_up.clear()
        has_sent = False
        for number, generation in [*self._running.items()]:
            try:
                has_ended = generation.has_ended()
            except _API.TritonModelException:
                # nobody waits for it any more, who has said so while it waited for room
                self._give_up(number)
            else:
                has_sent |= generation.has_sent
                if has_ended:
                    del self._running[number]
                    self._blocks_left += generation.blocks
        if not has_sent:
            self._say_nothing()

    def _say_nothing(self) -> None:
        """A step that reads prompts gives no tokens: whoever minds this process hears that it was made"""
        for number, generation in [*self._running.items()]:
            try:
                generation.say_nothing()
            except _API.TritonModelException:
                self._give_up(number)
            else:
                return

    def _begin(self) -> None:
        """Those that came first; none passes another that needs more"""
        for number, waiting in [*self._waiting.items()]:
            if waiting.blocks > self._blocks_left:
                return
            del self._waiting[number]
            self._begun += 1
            try:
                handle = self._pipeline.add_request(self._begun, ov.Tensor(waiting.prompt), waiting.config)
            except Exception as error:  # noqa: BLE001 - of the pipeline, about what was asked
                _fail(waiting.sender, _last_line(error), _API.TritonError.INVALID_ARG)
                continue
            self._blocks_left -= waiting.blocks
            self._running[number] = _Generation(waiting.sender, handle, waiting.blocks)

    def _give_up(self, number: str) -> None:
        generation = self._running.pop(number)
        generation.give_up()
        self._given_up.append(generation)


class _Waiting(NamedTuple):
    sender: Any
    prompt: NDArray[np.int64]
    config: Any
    blocks: int
    """That it may need"""


class _Generation:
    """One request that the pipeline has"""

    def __init__(self, sender: Any, handle: Any, blocks: int) -> None:  # noqa: ANN401 - of the worker and the pipeline
        self._sender = sender
        # the request is cancelled with the last reference to it
        self._handle = handle
        self.blocks = blocks
        self.has_sent = False
        """Whether the last step gave something"""

    def say_nothing(self) -> None:
        """Sends that there is nothing yet; TritonModelException: nobody waits for it"""
        self._sender.send(_API.InferenceResponse(_tensors((), (), ())))

    def give_up(self) -> None:
        """Nobody waits for it any more"""
        self._handle.cancel()
        self._sender.send(flags=_FINAL)

    def has_ended(self) -> bool:
        """Sends what the last step gave; TritonModelException: nobody waits for it"""
        status = self._handle.get_status()
        steps: list[Any] = []
        while self._handle.can_read():
            steps.extend(self._handle.read().values())
        has_ended = bool(status != genai.GenerationStatus.RUNNING)
        self.has_sent = has_ended or bool(steps)
        is_whole = bool(status == genai.GenerationStatus.FINISHED and steps)
        for output in steps[:-1] if is_whole else steps:
            self._sender.send(_response(output))
        if is_whole:
            self._sender.send(_response(steps[-1]), flags=_FINAL)
        elif has_ended:
            _fail(self._sender, f"the pipeline gave up the request: {status.name}", _API.TritonError.INTERNAL)
        return has_ended


def _fail(sender: Any, text: str, code: int) -> None:  # noqa: ANN401 - of the worker
    sender.send(_API.InferenceResponse(error=_API.TritonError(text, code)), flags=_FINAL)


def _config(order: Mapping[str, Any]) -> genai.GenerationConfig:
    config = genai.GenerationConfig()
    for name, value in order.items():
        if name == "json_schema":
            config.structured_output_config = genai.StructuredOutputConfig(json_schema=value)
        else:
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
    return _API.InferenceResponse(_tensors(tokens, likely, ends))


def _tensors(tokens: Sequence[int], likely: Sequence[float], ends: Sequence[int]) -> list[Any]:
    return [
        _API.Tensor("TOKENS", np.array([tokens], np.int32)),
        _API.Tensor("LOG_PROBABILITIES", np.array([likely], np.float32)),
        _API.Tensor("END", np.array([ends], np.int32)),
    ]


def _last_line(error: Exception) -> str:
    """OpenVINO's texts begin with where they come from"""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
