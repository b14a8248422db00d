"""Loads formulas from a text file, as `SUM = A + B`, and computes them with NumPy"""

import ast
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
from kushi_native import PythonModel

from runners import ConfigInvalid
from runners.backends import Backend, Bound, Opened, Placed, Prepared
from runners.repository.messages import ModelConfig

_FUNCTIONS = {"arange": np.arange, "nonzero": np.nonzero, "stack": np.stack}
_PARTS = (
    *(ast.Expression, ast.Name, ast.Load, ast.Constant, ast.Call, ast.Subscript),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.IfExp, ast.Compare, ast.Is),
)


class FormulaBackend(Backend):
    """NumPy, on the CPU"""

    def prepare(self, model: Placed) -> Prepared:
        return Prepared(Formulas)


class Formulas(Opened):
    """The formulas of a file, by the names of their outputs"""

    def __init__(self, path: Path) -> None:
        lines = [line.partition("=") for line in path.read_text().splitlines() if line.strip()]
        self._formulas = {name.strip(): _compiled(text.strip(), path) for name, _, text in lines}

    def bind(self, config: ModelConfig) -> Bound:
        """The file says nothing of types and shapes, so config.pbtxt says it all"""
        missing = [output.name for output in config.output if output.name not in self._formulas]
        if missing:
            raise ConfigInvalid(f"output '{missing[0]}' has no formula")
        inputs = [tensor.name for tensor in config.input]
        outputs = [self._formulas[tensor.name] for tensor in config.output]
        return Bound(partial(_sessions, Computed(inputs, outputs)))


class Computed:
    """What executes a batch; see PythonEngine"""

    concurrent = True

    def __init__(self, inputs: Sequence[str], outputs: Sequence[CodeType]) -> None:
        self._inputs = inputs
        self._outputs = outputs

    def execute(self, inputs: list[Any], wanted: list[bool]) -> list[Any]:
        names: Mapping[str, Any] = dict(zip(self._inputs, inputs, strict=True))
        outputs = zip(self._outputs, wanted, strict=True)
        return [eval(code, {"__builtins__": {}, **_FUNCTIONS}, names) if asked else None for code, asked in outputs]


def _sessions(engine: Computed, _threads: int) -> list[PythonModel]:
    return [PythonModel(engine)]


def _compiled(text: str, path: Path) -> CodeType:
    try:
        parsed = ast.parse(text, str(path), "eval")
    except SyntaxError as error:
        raise ConfigInvalid(f"formula '{text}' cannot be read: {error}") from None
    for part in ast.walk(parsed):
        if not isinstance(part, _PARTS) or (isinstance(part, ast.Name) and part.id.startswith("_")):
            raise ConfigInvalid(f"formula '{text}' has more than names, numbers, +, -, * and {', '.join(_FUNCTIONS)}")
    return compile(parsed, str(path), "eval")
