"""Executes batches on a program, in the process of one instance"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from ...errors import EngineFailed
from ..python_engine import ModelFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from .program import Program

__all__ = ["TensorFlowEngine"]

_HEADLINE = "Graph execution error:"


class TensorFlowEngine:
    """What is called once per batch"""

    concurrent = False

    def __init__(
        self,
        program: Program,
        place: Callable[[], AbstractContextManager[object]],
        inputs: Sequence[str],
        outputs: Sequence[str],
    ) -> None:
        """place: where it computes; inputs, outputs: the names, in the order of the configuration"""
        self._program = program
        self._place = place
        self._inputs = inputs
        self._outputs = outputs

    def execute(self, inputs: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
        """The wanted outputs, as arrays"""
        try:
            with self._place():
                tensors = {
                    name: tf.constant(array, self._program.types[name])
                    for name, array in zip(self._inputs, inputs, strict=True)
                }
                answered = self._program.call(tensors)
                outputs = zip(self._outputs, wanted, strict=True)
                return [answered[name].numpy() if asked else None for name, asked in outputs]
        except tf.errors.ResourceExhaustedError as error:
            raise ModelFailed(_text(error)) from None
        except Exception as error:  # noqa: BLE001 - whatever the model made TensorFlow raise
            raise EngineFailed(_text(error)) from None


def _text(error: Exception) -> str:
    """In one line, without what TensorFlow says of stack traces that it does not have"""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and "stack traces unavailable" not in line and line != _HEADLINE]
    return f"TensorFlow execute failure: {'; '.join(said)}"
