"""Exported programs, as torch.export.save writes them: their arguments and results, and how they are called"""

import io
import pickle
import threading
import weakref
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import getclosurevars
from pathlib import Path
from typing import Any

import torch
from torch.export.passes import move_to_device_pass
from torch.utils import _pytree as pytree

from ...errors import ConfigInvalid
from ...repository.tensors import TensorInfo
from .archive import sample_inputs
from .datatypes import named
from .exported_writes import changed_inputs
from .names import Leaf, Signature
from .program import Device, Program
from .sample_pickle import names_tensors_alone

__all__ = ["describe", "devices_of", "load", "read"]

_ANY = -1
_MOST_PARTS = 100_000
# PyTorch keeps what it is at in one place
_LOADING = threading.Lock()

# trees of values and their forms, as PyTorch has them
_Tree = Any


def load(path: Path, device: Device, *, compiled: bool = False) -> Program:
    """The program at `path`, its weights on `device`; compiled when it runs, once for each form of its inputs"""
    exported = read(path, device)
    try:
        module = exported.module()
    except Exception as error:  # noqa: BLE001 - whatever the content of the file made PyTorch raise
        raise ConfigInvalid(f"exported program '{path}' cannot be loaded: {error}") from None
    if not compiled:
        _unwrap_guards(module)
    called = torch.compile(module) if compiled else module
    program = describe(exported, called, f"exported program '{path}'")
    weakref.finalize(program, _give_up_weights, exported, module).atexit = False
    return program


def read(path: Path, device: Device) -> torch.export.ExportedProgram:
    """The program at `path` as PyTorch has it, its weights on `device`"""
    subject = f"exported program '{path}'"
    _check_sample_inputs(path, subject)
    try:
        with _LOADING:
            exported = torch.export.load(str(path))
        # PyTorch puts everything back where it was when the program was saved
        if device is not None and devices_of(exported) - {device}:
            exported = move_to_device_pass(exported, device)
    except Exception as error:  # noqa: BLE001 - whatever the content of the file made PyTorch raise
        raise ConfigInvalid(f"{subject} cannot be loaded: {error.__context__ or error}") from None
    return exported


def devices_of(exported: torch.export.ExportedProgram) -> set[torch.device]:
    """Where the weights of a program are, and what it makes as it runs"""
    parts = [part for part in exported.graph_module.modules() if isinstance(part, torch.fx.GraphModule)]
    made = [node.meta.get("val") for part in parts for node in part.graph.nodes]
    values = pytree.tree_leaves([exported.state_dict, exported.constants, made])
    return {value.device for value in values if isinstance(value, torch.Tensor)}


def describe(exported: torch.export.ExportedProgram, module: Callable[..., Any], subject: str) -> Program:
    """What `module` takes and gives, and how it is called, as its program has it; `subject` is how errors call it"""
    signature, form = exported.graph_signature, exported.call_spec
    given = [spec for spec in signature.input_specs if spec.kind.name == "USER_INPUT"]
    gives = [spec for spec in signature.output_specs if spec.kind.name == "USER_OUTPUT"]
    values = {node.name: node.meta.get("val") for node in exported.graph.nodes}
    arguments = _leaves(_argument_names(given, exported), given, values, subject)
    results = _leaves(_result_names(form.out_spec), gives, values, subject)
    changed = changed_inputs(exported)
    return Program(
        signature=Signature(_text(arguments, results), arguments=arguments, results=results),
        run=_caller(module, form.in_spec),
        defaults=tuple(getattr(spec.arg, "value", None) for spec in given),
        writes=frozenset(index for index, spec in enumerate(given) if spec.arg.name in changed),
        stateful=bool(changed - {spec.arg.name for spec in given}),
    )


def _check_sample_inputs(path: Path, subject: str) -> None:
    """PyTorch would open inputs that are more than tensors as a pickle of any kind"""
    refused = ConfigInvalid(
        f"{subject} has sample inputs that are no plain tensors, and is not loaded: export it with tensors alone"
    )
    samples = sample_inputs(path)
    try:
        if not names_tensors_alone(samples, f"{subject}: its sample inputs"):
            raise refused
        is_small = _has_few_parts(torch.load(io.BytesIO(samples), weights_only=True))
    except (EOFError, RuntimeError, ValueError, LookupError, TypeError, pickle.UnpicklingError, zipfile.BadZipFile):
        raise refused from None
    if not is_small:
        raise ConfigInvalid(f"{subject} has sample inputs of more than {_MOST_PARTS} parts, and is not loaded")


def _has_few_parts(inputs: object) -> bool:
    """PyTorch goes through all of them, and through one that stands in many places as often as it stands there"""
    waiting, left = [inputs], _MOST_PARTS
    while waiting and left > 0:
        part = waiting.pop()
        left -= 1
        if isinstance(part, Mapping):
            waiting += part.values()
        elif isinstance(part, (tuple, list)):
            left -= len(part)
            waiting += part[:_MOST_PARTS]
    return left > 0


def _unwrap_guards(module: torch.nn.Module) -> None:
    """
    The function that checks the inputs is wrapped for the compiler. In PyTorch 2.11 only one thread at a time may be in
    what wraps it: a second one fails with "prior should be empty".
    """
    guards = getattr(module, "_guards_fn", None)
    if guards is not None:
        # what it is wrapped in has no name for it
        guards.forward = getclosurevars(guards.forward).nonlocals.get("func", guards.forward)


def _give_up_weights(exported: torch.export.ExportedProgram, module: torch.nn.Module) -> None:
    """Graphs refer to themselves: left to the garbage collector, weights would stay long after their model"""
    exported.state_dict.clear()
    exported.constants.clear()
    for part in module.modules():
        part._parameters.clear()  # noqa: SLF001 - there is no public way
        part._buffers.clear()  # noqa: SLF001


def _caller(module: Callable[..., Any], form: _Tree) -> Callable[[Sequence[Any]], Sequence[Any]]:
    def run(arguments: Sequence[Any]) -> Sequence[Any]:
        positional, named_ones = pytree.tree_unflatten(arguments, form)
        results: list[Any] = pytree.tree_leaves(module(*positional, **named_ones))
        return results

    return run


def _argument_names(given: Sequence[Any], exported: torch.export.ExportedProgram) -> list[tuple[str, ...]]:
    """For each tensor the name of its argument, if it is one by itself, that of its node in the graph, and its place"""
    positional, named_ones = pytree.tree_unflatten(range(len(given)), exported.call_spec.in_spec)
    places = [*_places(positional, "ARGS"), *_places(named_ones, "KWARGS")]
    root = exported.module_call_graph[0].signature
    given_names = (root and root.forward_arg_names) or ()
    whole = zip((*positional, *named_ones.values()), given_names, strict=False)
    written = {index: name for index, name in whole if isinstance(index, int)}
    names = ([written.get(index), spec.arg.name, places[index]] for index, spec in enumerate(given))
    return [tuple(dict.fromkeys(filter(None, all_names))) for all_names in names]


def _result_names(form: _Tree) -> list[tuple[str, ...]]:
    tree = pytree.tree_unflatten(range(form.num_leaves), form)
    places = list(_places(tree, "RESULT"))
    if isinstance(tree, dict) and len(tree) == len(places):
        return [(str(key), place) for key, place in zip(tree, places, strict=True)]
    return [(f"OUTPUT__{index}", place) for index, place in enumerate(places)]


def _places(tree: _Tree, place: str) -> Iterator[str]:
    """The way to each value, as in RESULT[scores][1]"""
    if isinstance(tree, dict):
        for key, inner in tree.items():
            yield from _places(inner, f"{place}[{key}]")
    elif isinstance(tree, (list, tuple)):
        for index, inner in enumerate(tree):
            yield from _places(inner, f"{place}[{index}]")
    else:
        yield place


def _leaves(names: Sequence[tuple[str, ...]], specs: Sequence[Any], values: _Tree, subject: str) -> tuple[Leaf, ...]:
    return tuple(_leaf(own, values.get(spec.arg.name), subject) for own, spec in zip(names, specs, strict=True))


def _leaf(names: tuple[str, ...], value: object, subject: str) -> Leaf:
    if not isinstance(value, torch.Tensor):
        return Leaf(names, required=False, fixed=True)
    dims = tuple(size if isinstance(size, int) else _ANY for size in value.shape)
    return Leaf(names, info=TensorInfo(names[0], named(value.dtype, f"{subject}: '{names[0]}'"), dims))


def _text(arguments: Sequence[Leaf], results: Sequence[Leaf]) -> str:
    def listed(leaves: Sequence[Leaf]) -> str:
        return ", ".join(leaf.names[0] for leaf in leaves)

    return f"forward({listed(arguments)}) -> {listed(results)}"
