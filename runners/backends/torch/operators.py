"""
What an exported program may call.

PyTorch finds an operator by the path that the program states, beginning at the module torch, and reads the sizes in a
program as Python expressions. So both are looked at first: paths must lead to operators, expressions be arithmetic
whose numbers stay small.
"""

import operator
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...errors import ConfigInvalid
from .sizes import BITS_OF_A_SIZE, MOST_BITS, bits_of_result, is_arithmetic

__all__ = ["check_program"]

_WORD = r"(?!__)\w+"
_DUNDER = r"__i?(?:and|or|xor|lshift|rshift)__"
_OPERATOR = re.compile(rf"torch\.ops\.{_WORD}\.(?:{_WORD}|{_DUNDER})(?:\.{_WORD})?")
# what reads and writes files, and what talks to other processes; operators of PyTorch's for saving are among them
_BEYOND = re.compile(
    r"torch\.ops\.(?:aten\.save|debugprims\.\w+|_?c10d\w*\.\w+|symm_mem\.\w+|profiler\.\w+|\w+\.(?:\w+_)?files?(?:_\w+)?)"
    r"(?:\.\w+)?"
)
# functions of math that answer integers of any length are not among them
_MATH = r"a?(?:sin|cos|tan)h?|atan2|ceil|exp|fabs|floor|fmod|log(?:2|10|1p)?|pow|sqrt|trunc"
_SYMBOLIC = re.compile(rf"torch\.(?:sym_\w+|_sym_\w+)|math\.(?:{_MATH})")
_ON_NUMBERS = ("_operator.", "math.", "torch.sym_", "torch._sym_")
_MOST_SHOWN = 200
_ARITHMETIC = frozenset(
    f"_operator.{name}"
    for name in (
        *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg", "pos", "abs", "index", "getitem"),
        *("eq", "ne", "lt", "le", "gt", "ge", "and_", "or_", "xor", "not_", "invert", "lshift", "rshift"),
    )
    if hasattr(operator, name)
)


def check_program(program: object, path: Path) -> None:
    """Raises for the first thing in `program`, the content of an archive's model.json, that is more than computing"""
    for key, value in _strings(program):
        if key in {"target", "as_operator"} and not _is_operator(value):
            raise ConfigInvalid(f"'{path}' calls '{value}', which is no operator of PyTorch")
        if key in {"target", "as_operator"} and _BEYOND.fullmatch(value):
            raise ConfigInvalid(f"'{path}' calls '{value}', which does more than compute")
        if key == "expr_str" and not is_arithmetic(value):
            raise ConfigInvalid(
                f"'{path}' has the size '{value[:_MOST_SHOWN]}', which is no arithmetic of small numbers"
            )
    for nodes in _graphs(program):
        _check_computed_sizes(nodes, path)


def _is_operator(target: str) -> bool:
    return target in _ARITHMETIC or any(form.fullmatch(target) for form in (_OPERATOR, _SYMBOLIC))


def _check_computed_sizes(nodes: list[object], path: Path) -> None:
    """The numbers that the program computes as it runs: of each no more than its length is known"""
    lengths: dict[object, int] = {}
    for node in nodes:
        if not (isinstance(node, Mapping) and str(node.get("target")).startswith(_ON_NUMBERS)):
            continue
        given = [_number(argument, lengths) for argument in _listed(node.get("inputs"))]
        function = str(node["target"]).rpartition(".")[2]
        exponent = given[1][1] if len(given) == 2 else None
        length = bits_of_result(function, [length for length, _ in given], exponent)
        if length > MOST_BITS:
            raise ConfigInvalid(
                f"'{path}' computes a size by '{node['target']}' that may have more than {MOST_BITS} bits"
            )
        for output in _listed(node.get("outputs")):
            lengths[_name(output)] = length


def _number(argument: object, lengths: Mapping[object, int]) -> tuple[int, float | None]:
    """How long an argument of a node may be, and its value where it is stated"""
    value = argument.get("arg") if isinstance(argument, Mapping) else None
    while isinstance(value, Mapping) and len(value) == 1:
        (kind, inner) = next(iter(value.items()))
        if kind == "as_name":
            return lengths.get(inner, BITS_OF_A_SIZE), None
        value = inner
    if isinstance(value, int):
        return max(1, value.bit_length()), value
    return BITS_OF_A_SIZE, value if isinstance(value, float) else None


def _name(output: object) -> object:
    while isinstance(output, Mapping) and len(output) == 1:
        output = next(iter(output.values()))
    return output if isinstance(output, str) else None


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _strings(tree: object) -> Iterator[tuple[str, str]]:
    """The operators of all nodes and the expressions of all sizes, wherever they are"""
    for item in _mappings(tree):
        if isinstance(item.get("expr_str"), str):
            yield "expr_str", item["expr_str"]
        if isinstance(item.get("as_operator"), str):
            yield "as_operator", item["as_operator"]
        # a node; other things with a target mean the name of a weight
        if "inputs" in item and "outputs" in item and isinstance(item.get("target"), str):
            yield "target", item["target"]


def _graphs(tree: object) -> Iterator[list[object]]:
    """The nodes of each graph, in their order"""
    for item in _mappings(tree):
        if nodes := _listed(item.get("nodes")):
            yield nodes


def _mappings(tree: object) -> Iterator[Mapping[str, Any]]:
    waiting: list[object] = [tree]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting += item
        elif isinstance(item, Mapping):
            waiting += item.values()
            yield item
