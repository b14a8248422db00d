"""A forest in Treelite's own library for inference, GTIL, as a script would ask it"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import treelite

from .backend import OUTPUT, answer_of
from .options import read_options
from .reading import checkpoint_of, format_of, read_forest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ...repository.messages import ModelConfig

__all__ = ["open_alone"]


def open_alone(
    path: Path,
    config: ModelConfig,
    *,
    threads: int,
    gpu: int | None,  # noqa: ARG001 - forests are on CPUs
) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """What it predicts; contributions are not what GTIL computes"""
    options = read_options(config)
    model_type = options.format or format_of(path)
    content = checkpoint_of(path, model_type, unknown_fields=options.unknown_fields)
    model = treelite.Model.deserialize_bytes(content)
    answer = answer_of(read_forest(path, model_type, unknown_fields=options.unknown_fields), options, config)
    (name,) = (tensor.name for tensor in config.input)

    def ask(row: Mapping[str, Any]) -> Mapping[str, Any]:
        data = row[name].astype(model.input_type)
        values = treelite.gtil.predict(model, data, nthread=threads).reshape(len(data), -1).astype(np.float32)
        if answer == "probabilities":
            values = np.concatenate([1 - values, values], axis=1)
        elif answer == "class" and values.shape[1] == 1:
            values = (values > options.threshold).astype(np.float32)
        elif answer == "class":
            values = values.argmax(axis=1)[:, None].astype(np.float32)
        return {OUTPUT: values}

    return ask
