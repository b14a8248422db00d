"""TorchScript archives: what their method forward takes and gives, and how it is called"""

import logging
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ...errors import ConfigInvalid
from .names import Leaf, Signature
from .program import Device, Program
from .script_writes import changed_by

__all__ = ["describe", "load", "read"]

_LOG = logging.getLogger(__name__)
_WARNINGS = threading.Lock()

# PyTorch's classes for schemas, types and graphs of TorchScript are not public
_Native = Any


def load(path: Path, device: Device) -> Program:
    """The archive at `path`, its weights on `device`"""
    return describe(read(path, device), f"torchscript model '{path}'")


def read(path: Path, device: Device) -> _Native:
    """The archive at `path` as PyTorch has it, its weights on `device`"""
    try:
        module = _load_quietly(path, device)
    except Exception as error:  # noqa: BLE001 - whatever the content of the file made PyTorch raise
        raise ConfigInvalid(f"torchscript model '{path}' cannot be loaded: {error}") from None
    if not hasattr(module, "forward"):
        raise ConfigInvalid(f"torchscript model '{path}' has no method forward")
    if module.training:
        _LOG.warning("torchscript model '%s' was saved in training mode: call eval() before it is saved", path)
    return module


def describe(module: _Native, subject: str) -> Program:
    """What TorchScript takes and gives, and how it is called; `subject` is how errors call it"""
    schema = module.forward.schema
    signature = _signature(schema, subject)
    writes, stateful = changed_by(module)
    return Program(
        signature=signature,
        run=_caller(module, several=signature.results is None or len(signature.results) > 1),
        defaults=tuple(
            argument.default_value if argument.has_default_value() else None for argument in schema.arguments[1:]
        ),
        writes=writes,
        stateful=stateful,
    )


def _load_quietly(path: Path, device: Device) -> _Native:
    """PyTorch advises against TorchScript by a warning, on which the user of an archive cannot act"""
    with _WARNINGS, warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return torch.jit.load(str(path), map_location=device)


def _caller(module: _Native, *, several: bool) -> Callable[[Sequence[Any]], Sequence[Any] | Mapping[str, Any]]:
    def run(arguments: Sequence[Any]) -> Sequence[Any] | Mapping[str, Any]:
        answer: Any = module(*arguments)
        return answer if several or isinstance(answer, tuple) else (answer,)

    return run


def _signature(schema: _Native, subject: str) -> Signature:
    arguments, result = schema.arguments[1:], schema.returns[0].type
    listed = ", ".join(f"{argument.name}: {argument.type.annotation_str}" for argument in arguments)
    text = f"forward({listed}) -> {result.annotation_str}"
    keyed = len(arguments) == 1 and arguments[0].type.kind() == "DictType"
    return Signature(
        text=text,
        arguments=() if keyed else tuple(_argument(argument, f"{subject}, {text}") for argument in arguments),
        takes_dictionary=keyed,
        results=_results(result, f"{subject}, {text}"),
        gives_dictionary=result.kind() == "DictType",
    )


def _argument(argument: _Native, subject: str) -> Leaf:
    kind = argument.type
    optional = kind.kind() == "OptionalType"
    rank = _string_rank(kind.getElementType() if optional else kind)
    if rank is not None:
        return Leaf((argument.name,), required=not (optional or argument.has_default_value()), string_rank=rank)
    if argument.has_default_value():
        return Leaf((argument.name,), required=False, fixed=True)
    raise ConfigInvalid(
        f"{subject}: argument '{argument.name}' is {kind.annotation_str}, expected Tensor, List[str], or a single "
        "Dict[str, Tensor]"
    )


def _results(result: _Native, subject: str) -> tuple[Leaf, ...] | None:
    if result.kind() == "DictType" or (result.kind() == "ListType" and _string_rank(result) is None):
        return None
    elements = list(result.elements()) if result.kind() == "TupleType" else [result]
    leaves = []
    for index, element in enumerate(elements):
        rank = _string_rank(element)
        if rank is None:
            raise ConfigInvalid(
                f"{subject}: result {index} is {element.annotation_str}, expected Tensor, List[str], a tuple of these, "
                "or Dict[str, Tensor]"
            )
        leaves.append(Leaf((), string_rank=rank))
    return tuple(leaves)


def _string_rank(kind: _Native) -> int | None:
    """0 for a tensor, n for n times List around str, nothing for any other type"""
    rank = 0
    while kind.kind() == "ListType":
        kind, rank = kind.getElementType(), rank + 1
    if rank == 0:
        return 0 if kind.kind() == "TensorType" else None
    return rank if kind.kind() == "StringType" else None
