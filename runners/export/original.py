"""The model that an exported one must equal: a module, an exported program or TorchScript"""

import inspect as python
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..backends.torch import exported, script
from ..backends.torch.archive import Format, inspect
from ..backends.torch.names import INDEXED, Leaf
from ..backends.torch.program import Program
from ..errors import InvalidInput, Unsupported
from ..repository.tensors import TensorInfo, shape_text
from .configuration import check_batching
from .samples import Samples
from .tensors import Input
from .tracing import trace, trace_script

__all__ = ["Original", "Stated", "opened"]

_ANY = -1
_CPU = torch.device("cpu")
_POSITIONAL = (python.Parameter.POSITIONAL_ONLY, python.Parameter.POSITIONAL_OR_KEYWORD)

# a module of any of PyTorch's kinds; PyTorch is not in the environment that is checked
_Module = Any


@dataclass(frozen=True)
class Stated:
    """What the caller says of the inputs and outputs"""

    inputs: Sequence[Input | torch.Tensor]
    input_names: Sequence[str]
    output_names: Sequence[str]
    max_batch_size: int

    @property
    def batching(self) -> bool:
        """Whether tensors have a batch dimension"""
        return self.max_batch_size > 0


@dataclass(frozen=True)
class Original:
    """A model in memory, with all that an exporter and a comparison need"""

    subject: str
    exportable: _Module
    """TorchScript or an exported program"""
    samples: Samples
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    run: Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]
    """All outputs for values of all inputs, which stay as they are"""


@contextmanager
def opened(source: _Module | str | Path, stated: Stated) -> Iterator[Original]:
    """The model in or at `source`; a module is in evaluation mode meanwhile"""
    model, subject = _open(source)
    if isinstance(model, torch.export.ExportedProgram):
        yield _of_program(model, stated, subject)
        return
    with _evaluating(model):
        yield (_of_script if isinstance(model, torch.jit.ScriptModule) else _of_module)(model, stated, subject)


def _open(source: _Module | str | Path) -> tuple[_Module, str]:
    if isinstance(source, (torch.nn.Module, torch.export.ExportedProgram)):
        return source, type(source).__name__
    path = Path(source)
    if not path.is_file():
        raise InvalidInput(
            f"'{path}' not found: expected a TorchScript file or an exported program, or MODULE:CALLABLE"
        )
    if inspect(path) is Format.SCRIPT:
        return script.read(path, _CPU), f"torchscript model '{path}'"
    return exported.read(path, _CPU), f"exported program '{path}'"


def _of_program(program: torch.export.ExportedProgram, stated: Stated, subject: str) -> Original:
    described = exported.describe(program, program.module(), subject)
    leaves = described.signature.arguments
    infos = [_info(leaf, subject) for leaf in leaves]
    if stated.batching:
        check_batching(infos)
    own = [Input(info.name, info.datatype, info.dims[stated.batching :]) for info in infos]
    inputs = _arranged(stated.inputs, [leaf.names[0] for leaf in leaves], described.signature.text) or own
    for given, info in zip(inputs, own, strict=True):
        _check_agreement(given, info)
    return _original(subject, program, described, Samples(inputs, _CPU, batching=stated.batching), stated)


def _of_module(module: _Module, stated: Stated, subject: str) -> Original:
    parameters = python.signature(module.forward).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind in _POSITIONAL]
    text = f"forward({', '.join(names)})"
    inputs = _arranged(stated.inputs, names, text, exact=False)
    if not inputs:
        raise InvalidInput(_unsaid(subject, text))
    samples = Samples(inputs, _device(module), batching=stated.batching)
    program = trace(module, samples, stated.max_batch_size, subject)
    described = exported.describe(program, module, subject)
    return _original(subject, program, described, samples, stated)


def _of_script(module: _Module, stated: Stated, subject: str) -> Original:
    described = script.describe(module, subject)
    signature = described.signature
    if signature.takes_dictionary or any(leaf.string_rank for leaf in signature.arguments):
        raise Unsupported(f"{subject} takes other things than tensors, and is not exported: {signature.text}")
    names = [leaf.names[0] for leaf in signature.arguments if leaf.required]
    inputs = _arranged(stated.inputs, names, signature.text)
    if not inputs:
        raise InvalidInput(_unsaid(subject, signature.text))
    samples = Samples(inputs, _device(module), batching=stated.batching)
    exportable = trace_script(module, samples, stated.max_batch_size, subject) if signature.gives_dictionary else module
    return _original(subject, exportable, described, samples, stated)


def _original(subject: str, exportable: _Module, described: Program, samples: Samples, stated: Stated) -> Original:
    if described.stateful:
        raise Unsupported(f"{subject} changes its own weights or attributes, which an ONNX model cannot")

    def run(values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return list(_named(_answer(described, values, subject), described, subject).values())

    arguments = [leaf.names[0] for leaf in described.signature.arguments]
    input_names = tuple(stated.input_names) or tuple(
        given.name if isinstance(given, Input) else name for given, name in zip(samples.inputs, arguments, strict=False)
    )
    own = _named(_answer(described, samples.draw(2), subject), described, subject)
    output_names = tuple(stated.output_names) or tuple(own)
    _check_names("input", input_names, len(samples.inputs), described.signature.text)
    _check_names("output", output_names, len(own), described.signature.text)
    for name in output_names:
        if name in input_names:
            raise InvalidInput(f"'{name}' is an input and an output of {subject}: name one of them otherwise")
    return Original(subject, exportable, samples, input_names, output_names, run)


def _answer(
    described: Program, values: Sequence[torch.Tensor], subject: str
) -> Sequence[torch.Tensor] | Mapping[str, torch.Tensor]:
    shapes = ", ".join(shape_text(tuple(value.shape)) for value in values)
    left_out = described.defaults[len(values) :]
    try:
        with torch.no_grad():
            return described.run([*(value.clone() for value in values), *left_out])
    except Exception as error:
        raise InvalidInput(f"{subject} cannot be run with inputs of the shapes {shapes}: {error}") from error


def _named(
    answer: Sequence[torch.Tensor] | Mapping[str, torch.Tensor], described: Program, subject: str
) -> dict[str, torch.Tensor]:
    leaves = described.signature.results or ()
    if isinstance(answer, Mapping):
        named = dict(answer)
    else:
        names = [leaf.names[0] if leaf.names else f"OUTPUT__{index}" for index, leaf in enumerate(leaves)]
        named = dict(zip(names or (f"OUTPUT__{index}" for index in range(len(answer))), answer, strict=True))
    for name, value in named.items():
        if not isinstance(value, torch.Tensor):
            raise Unsupported(f"output '{name}' of {subject} is {type(value).__name__}, expected a tensor")
    return named


def _arranged(
    stated: Sequence[Input | torch.Tensor], names: Sequence[str], text: str, *, exact: bool = True
) -> Sequence[Input | torch.Tensor]:
    """
    `stated` in the order of the arguments, if it names them, or has their numbers as in INPUT__0; otherwise that is its
    order
    """
    if stated and (len(stated) > len(names) or (exact and len(stated) < len(names))):
        raise InvalidInput(f"{len(stated)} inputs are stated, the model has {len(names)}: {text}")
    by_name = {given.name: given for given in stated if isinstance(given, Input)}
    if len(by_name) == len(stated) and set(by_name) == set(names[: len(stated)]):
        return [by_name[name] for name in names[: len(stated)]]
    places = {int(found[1]): given for name, given in by_name.items() if (found := INDEXED.fullmatch(name))}
    if len(places) == len(stated) and set(places) == set(range(len(stated))):
        return [places[index] for index in range(len(stated))]
    return stated


def _info(leaf: Leaf, subject: str) -> TensorInfo:
    if leaf.info is None:
        raise Unsupported(f"argument '{leaf.names[0]}' of {subject} is a constant: export it with tensors alone")
    return leaf.info


def _check_agreement(given: Input | torch.Tensor, own: Input) -> None:
    if not isinstance(given, Input):
        return
    fits = len(given.dims) == len(own.dims) and all(
        mine in {_ANY, dim} for dim, mine in zip(given.dims, own.dims, strict=True)
    )
    if given.datatype != own.datatype or not fits:
        raise InvalidInput(
            f"input '{given.name}' is {given.datatype} {shape_text(given.dims)}, in the file it is {own.datatype} "
            f"{shape_text(own.dims)}"
        )


def _check_names(role: str, names: Sequence[str], count: int, text: str) -> None:
    if len(names) != count:
        raise InvalidInput(f"{len(names)} names of {role}s are given, the model has {count} {role}s: {text}")
    if len(set(names)) < count:
        raise InvalidInput(f"names of {role}s are not unique: {', '.join(names)}")


def _unsaid(subject: str, text: str) -> str:
    return (
        f"{subject} does not say the data types and shapes of its inputs, only {text}: state each as "
        "--input NAME:DATATYPE:DIMS, without the batch, as in --input image:FP32:3,224,224"
    )


def _device(module: _Module) -> torch.device:
    weights = [*module.parameters(), *module.buffers()]
    return weights[0].device if weights else _CPU


@contextmanager
def _evaluating(module: _Module) -> Iterator[None]:
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training
