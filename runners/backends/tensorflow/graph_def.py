"""Opens a frozen GraphDef, whose inputs and outputs are said by the configuration: the names of its nodes"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError

from ...errors import ConfigInvalid
from ...repository.messages import ModelConfig
from .messages import read_message
from .program import Program, described

__all__ = ["open_graph_def"]


def open_graph_def(path: Path, config: ModelConfig) -> Program:
    """The graph from the inputs of `config` to its outputs"""
    if not config.input or not config.output:
        raise ConfigInvalid(
            f"GraphDef '{path}' does not say what its inputs and outputs are: expected both in config.pbtxt"
        )
    definition = tf.compat.v1.GraphDef()
    try:
        definition.ParseFromString(read_message(path))
    except DecodeError:
        raise ConfigInvalid(f"GraphDef '{path}' cannot be read: it is no message of that kind") from None
    try:
        graph = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(definition, name=""), [])
    except (ValueError, tf.errors.OpError) as error:
        raise ConfigInvalid(f"GraphDef '{path}' cannot be loaded: {error}") from None
    inputs = _tensors(graph.graph, [tensor.name for tensor in config.input], path)
    outputs = _tensors(graph.graph, [tensor.name for tensor in config.output], path)
    function = graph.prune(list(inputs.values()), dict(outputs))
    names = list(inputs)

    def call(tensors: Mapping[str, Any]) -> Mapping[str, Any]:
        answered: Mapping[str, Any] = function(*(tensors[name] for name in names))
        return answered

    return Program(
        call,
        [described(name, tensor) for name, tensor in inputs.items()],
        [described(name, tensor) for name, tensor in outputs.items()],
        {name: tensor.dtype for name, tensor in inputs.items()},
    )


def _tensors(graph: Any, names: Sequence[str], path: Path) -> dict[str, Any]:  # noqa: ANN401 - one of TensorFlow's
    tensors = {}
    for name in names:
        try:
            tensors[name] = graph.get_tensor_by_name(name if ":" in name else f"{name}:0")
        except (KeyError, ValueError):
            raise ConfigInvalid(f"GraphDef '{path}' has no tensor '{name}'") from None
    return tensors
