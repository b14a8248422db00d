"""
Which argument of a model each configured input is, and which of its results each configured output.

The conventions are those of Triton's backend: names that the model itself has; or NAME__INDEX; or else the order in
config.pbtxt. An exported program's tensors also go by their places in its arguments and results: ARGS[0],
KWARGS[mask], RESULT[scores][1].
"""

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...errors import ConfigInvalid
from ...repository.messages import DataType, ModelConfig, ModelInput, ModelOutput
from ...repository.tensors import TensorInfo, model_dims

__all__ = ["INDEXED", "Leaf", "Place", "Signature", "bind_inputs", "bind_outputs"]

_LOG = logging.getLogger(__name__)
INDEXED = re.compile(r"(?:(?!__).)*__([0-9]{1,9})")
"""A name that says which argument or result it is"""

Place = int | str
"""The index of an argument or a result, or the key of one in a dictionary"""


@dataclass(frozen=True)
class Leaf:
    """One argument or result; the first of its names is the one that a completed configuration gives it"""

    names: tuple[str, ...]
    required: bool = True
    fixed: bool = False
    """No tensor: it stays at its default"""
    string_rank: int = 0
    """0 for a tensor; 1 for a list of strings, 2 for a list of lists"""
    info: TensorInfo | None = None
    """Data type and shape where the file has them"""


@dataclass(frozen=True)
class Signature:
    """What a model takes and gives, in order, as far as its file says"""

    text: str
    arguments: tuple[Leaf, ...]
    takes_dictionary: bool = False
    """The only argument is a dictionary of tensors"""
    results: tuple[Leaf, ...] | None = None
    """`None`: as many as it gives when it runs"""
    gives_dictionary: bool = False


def bind_inputs(config: ModelConfig, signature: Signature) -> tuple[Place, ...]:
    """The place of each configured input"""
    if not config.input:
        raise ConfigInvalid(_nothing_specified("input", signature))
    if signature.takes_dictionary:
        return tuple(tensor.name for tensor in config.input)
    leaves = signature.arguments
    stated = len(config.input)
    required = sum(leaf.required for leaf in leaves)
    if not required <= stated <= len(leaves):
        provided = str(len(leaves)) if required == len(leaves) else f"{required} to {len(leaves)}"
        raise ConfigInvalid(
            f"unable to load model '{config.name}', configuration expects {stated} inputs, model provides {provided}: "
            f"{signature.text}"
        )
    places = _places(config, config.input, "input", leaves)
    _check_strings(config, config.input, places, "input", leaves)
    for place, leaf in enumerate(leaves):
        if leaf.required and place not in places:
            raise ConfigInvalid(
                f"unable to load model '{config.name}', no input of the configuration is its argument {place}, "
                f"'{leaf.names[0]}': {signature.text}"
            )
    for tensor, place in zip(config.input, places, strict=True):
        if tensor.optional and leaves[place].required:
            raise ConfigInvalid(
                f"unable to load model '{config.name}', input '{tensor.name}' is optional in the configuration, and "
                f"the model has no default for it: {signature.text}"
            )
    return places


def bind_outputs(config: ModelConfig, signature: Signature) -> tuple[Place, ...]:
    """The place of each configured output"""
    if not config.output:
        raise ConfigInvalid(_nothing_specified("output", signature))
    if signature.gives_dictionary and signature.results is None:
        return tuple(tensor.name for tensor in config.output)
    places = _places(config, config.output, "output", signature.results)
    _check_strings(config, config.output, places, "output", signature.results or ())
    return places


def _places(
    config: ModelConfig, tensors: Iterable[ModelInput | ModelOutput], role: str, leaves: Sequence[Leaf] | None
) -> tuple[int, ...]:
    names = [tensor.name for tensor in tensors]
    known = {name: place for place, leaf in enumerate(leaves or ()) for name in leaf.names}
    indexed = [INDEXED.fullmatch(name) for name in names]
    if names and all(name in known for name in names):
        places = tuple(known[name] for name in names)
    elif all(indexed):
        places = tuple(int(match[1]) for match in indexed if match)
    else:
        odd = next(name for name, match in zip(names, indexed, strict=True) if not match)
        if len(names) > 1:
            _LOG.warning(
                "%s '%s' of model '%s' is neither a name that the model has nor of the form NAME__INDEX: its %ss are "
                "taken in the order of the configuration",
                *(role, odd, config.name, role),
            )
        places = tuple(range(len(names)))
    for name, place in zip(names, places, strict=True):
        if leaves is not None and place >= len(leaves):
            raise ConfigInvalid(
                f"The {role} {name} in the model configuration refers to an {role} index which doesn't exist. This "
                f"model has {len(leaves)} {role}s"
            )
        if leaves is not None and leaves[place].fixed:
            raise ConfigInvalid(f"{role} '{name}' of model '{config.name}' is no tensor in the model")
        if places.count(place) > 1:
            raise ConfigInvalid(f"{role} '{name}' of model '{config.name}' is not the only one with index {place}")
    return places


def _check_strings(
    config: ModelConfig,
    tensors: Iterable[ModelInput | ModelOutput],
    places: Iterable[int],
    role: str,
    leaves: Sequence[Leaf],
) -> None:
    """PyTorch has no tensors of strings: an array of n dimensions is n lists around str, one inside the other"""
    for tensor, place in zip(tensors, places, strict=True):
        if place >= len(leaves):
            continue
        rank = leaves[place].string_rank
        kind = "List[" * rank + "str" + "]" * rank if rank else "Tensor"
        subject = f"unable to load model '{config.name}', {role} '{tensor.name}'"
        is_text = tensor.data_type == DataType.Value("TYPE_STRING")
        if is_text != (rank > 0):
            raise ConfigInvalid(f"{subject} is of {DataType.Name(tensor.data_type)}, in the model it is {kind}")
        dims = model_dims(tensor)
        stated = len(dims) + (config.max_batch_size > 0)
        if is_text and stated != rank:
            raise ConfigInvalid(f"{subject} has {stated} dimensions with that of the batch, in the model it is {kind}")


def _nothing_specified(role: str, signature: Signature) -> str:
    return (
        f"model configuration must contain at least one {role}, none were specified. The file does not say data types "
        f"and shapes, only {signature.text}"
    )
