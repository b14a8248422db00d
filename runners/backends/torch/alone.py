"""A PyTorch model as a script would call it: the module itself, in eager mode, or TorchScript's interpreter"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...repository.tensors import protocol_type
from . import exported, script
from .archive import Format, inspect
from .names import bind_inputs, bind_outputs
from .options import import_packages
from .values import array_of, pick, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ...repository.messages import ModelConfig

__all__ = ["open_alone"]


def open_alone(
    path: Path, config: ModelConfig, *, threads: int, gpu: int | None
) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """Its tensors are found by Triton's names, as for the server"""
    import_packages(config)
    device = torch.device("cpu") if gpu is None else torch.device("cuda", gpu)
    if inspect(path) is Format.SCRIPT:
        program = script.load(path, device)
    else:
        program = exported.load(path, device, compiled=False)
    torch.set_num_threads(threads)
    names = [tensor.name for tensor in config.input]
    places = dict(zip(names, bind_inputs(config, program.signature), strict=True))
    types = {tensor.name: protocol_type(tensor.data_type) for tensor in config.input}
    outputs = [tensor.name for tensor in config.output]
    results = dict(zip(outputs, bind_outputs(config, program.signature), strict=True))

    def ask(row: Mapping[str, Any]) -> Mapping[str, Any]:
        # a copy, since the model may write to it
        values = {places[name]: _on(device, value_of(array.copy(), types[name])) for name, array in row.items()}
        if program.signature.takes_dictionary:
            arguments = [values]
        else:
            arguments = [values.get(index, default) for index, default in enumerate(program.defaults)]
        with torch.inference_mode():
            answered = program.run(arguments)
        return {name: array_of(pick(answered, results[name], name)) for name in outputs}

    return ask


def _on(device: torch.device, value: Any) -> Any:  # noqa: ANN401 - a tensor or strings
    return value.to(device) if isinstance(value, torch.Tensor) else value
