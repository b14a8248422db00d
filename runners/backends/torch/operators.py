"""
What an exported program may call.

PyTorch finds an operator by the path that the program states, beginning at the module torch, and reads the sizes in a
program as Python expressions. So both are looked at first: paths must lead to operators, expressions be arithmetic.
"""

import ast
import operator
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from ...errors import ConfigInvalid

__all__ = ["check_program"]

_WORD = r"(?!__)\w+"
_DUNDER = r"__i?(?:and|or|xor|lshift|rshift)__"
_OPERATOR = re.compile(rf"torch\.ops\.{_WORD}\.(?:{_WORD}|{_DUNDER})(?:\.{_WORD})?")
_SYMBOLIC = re.compile(r"torch\.(?:sym_\w+|_sym_\w+)|math\.(?!_)\w+")
_ARITHMETIC = frozenset(
    f"_operator.{name}"
    for name in (
        *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg", "pos", "abs", "index", "getitem"),
        *("eq", "ne", "lt", "le", "gt", "ge", "and_", "or_", "xor", "not_", "invert", "lshift", "rshift"),
    )
    if hasattr(operator, name)
)
# Max, Min, Mod, FloorDiv, Add, Mul …: the classes that sizes are built of
_FUNCTION = re.compile(r"[A-Z]\w*|floor|ceiling")


def check_program(program: object, path: Path) -> None:
    """Raises for the first thing in `program`, the content of an archive's model.json, that is more than computing"""
    for key, value in _strings(program):
        if key == "target" and not _is_operator(value):
            raise ConfigInvalid(f"'{path}' calls '{value}', which is no operator of PyTorch")
        if key == "expr_str" and not _is_arithmetic(value):
            raise ConfigInvalid(f"'{path}' has the size '{value}', which is no arithmetic")


def _is_operator(target: str) -> bool:
    return target in _ARITHMETIC or any(form.fullmatch(target) for form in (_OPERATOR, _SYMBOLIC))


def _is_arithmetic(expression: str) -> bool:
    try:
        tree = ast.parse(expression, mode="eval")
        return _is_term(tree.body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _is_term(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=value):
            return isinstance(value, (bool, int, float))
        case ast.Name(id=name):
            return not name.startswith("_")
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str() as name)], keywords=keywords):
            return name.isidentifier() and all(isinstance(keyword.value, ast.Constant) for keyword in keywords)
        case ast.Call(func=ast.Name(id=name), args=terms, keywords=[]):
            return bool(_FUNCTION.fullmatch(name)) and all(map(_is_term, terms))
    terms = _terms(node)
    return bool(terms) and all(map(_is_term, terms))


def _terms(node: ast.expr) -> list[ast.expr]:
    """What arithmetic or a comparison is about; nothing for anything else"""
    match node:
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.UnaryOp(operand=operand):
            return [operand]
        case ast.BoolOp(values=terms):
            return terms
        case ast.Compare(left=left, comparators=terms):
            return [left, *terms]
    return []


def _strings(tree: object) -> Iterator[tuple[str, str]]:
    """The operators of all nodes and the expressions of all sizes, wherever they are"""
    waiting: list[object] = [tree]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting += item
        elif isinstance(item, Mapping):
            waiting += item.values()
            if isinstance(item.get("expr_str"), str):
                yield "expr_str", item["expr_str"]
            # a node; other things with a target mean the name of a weight
            if "inputs" in item and "outputs" in item and isinstance(item.get("target"), str):
                yield "target", item["target"]
