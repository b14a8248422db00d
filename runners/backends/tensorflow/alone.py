"""A TensorFlow model as a script would call it: its function, on tensors"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from .devices import take_devices
from .opening import open_program, read_options, set_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ...repository.messages import ModelConfig

__all__ = ["open_alone"]


def open_alone(
    path: Path, config: ModelConfig, *, threads: int, gpu: int | None
) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """In a process that has nothing else of TensorFlow's"""
    options = read_options(config, intra_op_threads=threads)
    set_threads(options)
    device = take_devices(tf.config, gpu, by_itself=False)
    program = open_program(path, config, options)
    outputs = [tensor.name for tensor in config.output]

    def ask(row: Mapping[str, Any]) -> Mapping[str, Any]:
        with tf.device(device) if device else nullcontext():
            answered = program.call({name: tf.constant(array, program.types[name]) for name, array in row.items()})
        return {name: answered[name].numpy() for name in outputs}

    return ask
