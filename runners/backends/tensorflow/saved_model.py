"""Opens a SavedModel: a directory with a graph, its weights, and signatures to call it by"""

import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from ...errors import ConfigInvalid
from .program import Program, described

__all__ = ["open_saved_model"]

_LOG = logging.getLogger(__name__)
_DEFAULT_SIGNATURE = "serving_default"
_DEFAULT_TAG = "serve"


def open_saved_model(path: Path, *, tag: str, signature: str) -> Program:
    """The function of one signature; tag and signature may be empty for those that are usual"""
    tags = [tag or _DEFAULT_TAG]
    try:
        loaded = tf.saved_model.load(str(path), tags=tags)
    except Exception as error:  # noqa: BLE001 - whatever the objects of the file made TensorFlow raise
        return _by_session(path, tags, signature, error)
    function = loaded.signatures[_chosen(path, loaded.signatures, signature)]
    _, inputs = function.structured_input_signature

    # `loaded` has the weights, and goes when nobody has it
    def call(tensors: Mapping[str, Any], _weights: object = loaded) -> Mapping[str, Any]:
        answered: Mapping[str, Any] = function(**tensors)
        return answered

    return Program(
        call,
        [described(name, spec) for name, spec in inputs.items()],
        [described(name, spec) for name, spec in function.structured_outputs.items()],
        {name: spec.dtype for name, spec in inputs.items()},
    )


def _by_session(path: Path, tags: list[str], signature: str, error: Exception) -> Program:
    """
    As TensorFlow 1 loads it: graph and weights alone. The objects that the file has beside them are those of whoever
    trained the model, and some cannot be made without their code, as an optimizer
    """
    graph = tf.Graph()
    session = tf.compat.v1.Session(graph=graph)
    try:
        with graph.as_default():
            signatures = tf.compat.v1.saved_model.load(session, tags, str(path)).signature_def
    except Exception:  # noqa: BLE001 - the first error says more
        raise ConfigInvalid(f"SavedModel '{path}' cannot be loaded: {_first_line(error)}") from None
    # what TensorFlow keeps beside the signatures has a name that begins with two underscores
    named = {name: one for name, one in signatures.items() if not name.startswith("__")}
    chosen = named[_chosen(path, named, signature)]
    _LOG.warning("SavedModel '%s' is loaded without its objects, which cannot be made: %s", path, _first_line(error))
    feeds, fetches = (_tensors(path, graph, infos) for infos in (chosen.inputs, chosen.outputs))

    def call(tensors: Mapping[str, Any]) -> Mapping[str, Any]:
        answered = session.run(fetches, {feeds[name]: tensor.numpy() for name, tensor in tensors.items()})
        return {name: tf.constant(array) for name, array in answered.items()}

    return Program(
        call,
        [described(name, _spec(one)) for name, one in sorted(chosen.inputs.items())],
        [described(name, _spec(one)) for name, one in sorted(chosen.outputs.items())],
        {name: tensor.dtype for name, tensor in feeds.items()},
    )


def _tensors(path: Path, graph: Any, infos: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - TensorFlow's
    try:
        return {name: graph.get_tensor_by_name(one.name) for name, one in infos.items()}
    except (KeyError, ValueError) as error:
        # a sparse one has none of its own
        raise ConfigInvalid(f"SavedModel '{path}' has a signature of other things than tensors: {error}") from None


def _chosen(path: Path, signatures: Collection[str], signature: str) -> str:
    named = sorted(signatures)
    # one that has a single signature leaves no choice
    wanted = signature or (named[0] if len(named) == 1 else _DEFAULT_SIGNATURE)
    if wanted not in named:
        has = ", ".join(f"'{name}'" for name in named) or "none"
        raise ConfigInvalid(
            f"SavedModel '{path}' has no signature '{wanted}', it has {has}: name one in the parameter "
            "'TF_SIGNATURE_DEF'"
        )
    return wanted


def _spec(info: Any) -> Any:  # noqa: ANN401 - a TensorInfo of TensorFlow's, and a TensorSpec
    return tf.TensorSpec(tf.TensorShape(info.tensor_shape), tf.as_dtype(info.dtype))


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
