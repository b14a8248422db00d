"""Opens a SavedModel: a directory with a graph, its weights, and signatures to call it by"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from ...errors import ConfigInvalid
from .program import Program, described

__all__ = ["open_saved_model"]

_DEFAULT_SIGNATURE = "serving_default"
_DEFAULT_TAG = "serve"


def open_saved_model(path: Path, *, tag: str, signature: str) -> Program:
    """The function of one signature; tag and signature may be empty for those that are usual"""
    try:
        loaded = tf.saved_model.load(str(path), tags=[tag or _DEFAULT_TAG])
    except (OSError, RuntimeError, ValueError, KeyError, tf.errors.OpError) as error:
        raise ConfigInvalid(f"SavedModel '{path}' cannot be loaded: {_first_line(error)}") from None
    named = sorted(loaded.signatures)
    # one that has a single signature leaves no choice
    wanted = signature or (named[0] if len(named) == 1 else _DEFAULT_SIGNATURE)
    if wanted not in loaded.signatures:
        has = ", ".join(f"'{name}'" for name in named) or "none"
        raise ConfigInvalid(
            f"SavedModel '{path}' has no signature '{wanted}', it has {has}: name one in the parameter "
            "'TF_SIGNATURE_DEF'"
        )
    function = loaded.signatures[wanted]
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


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
