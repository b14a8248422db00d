"""
What PyTorch makes source code of, when it opens an exported program: names, guards and the forms of its arguments.

They are texts of the file, and would run as they stand there. So names must be names, guards be comparisons of sizes,
and forms be made of tuples, lists and dictionaries.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...bounded_json import read_json
from ...errors import ConfigInvalid

__all__ = ["check_generated"]

_NAMES = frozenset({"name", "as_name"})
# what somebody wrote, which PyTorch keeps as text
_TEXTS = frozenset({"as_string", "as_strings", "metadata"})
# checked by themselves, here or elsewhere
_OTHERS = frozenset({"expr_str", "forward_arg_names", "guards_code", "in_spec", "out_spec"})
_PLAIN = re.compile(r"[\w.@:+-]*")
_KEY = re.compile(r"[\w .:/-]*")
_FORMS = frozenset({None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict"})
_GUARD_NODES = (
    *(ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.UAdd),
    *(ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Is, ast.IsNot),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod),
    *(ast.Subscript, ast.Load),
)
# PyTorch puts a guard into a line of source code twice, once between quotes: no such quotes, escapes, comments, lines
_GUARD = re.compile(r"[\w .:'\[\]()<>=!%*/+,-]*")
_GUARD_NAMES = frozenset({"L", "math", "max", "min", "abs", "len", "int", "float"})
_GUARD_ATTRIBUTES = frozenset({"size", "stride", "storage_offset", "shape", "dim", "ndim", "numel", "inf", "isnan"})
_MOST_GUARD = 10_000
_LARGEST_NUMBER = 2**63
_MOST_SHOWN = 200


def check_generated(program: object, path: Path) -> None:
    """Raises for the first text in `program`, the content of an archive's model.json, that is more than it should be"""
    for key, text in _texts(program):
        if key in _NAMES or key == "forward_arg_names":
            # an argument without a name has an empty one
            is_good = not text or text.isidentifier()
        elif key == "guards_code":
            is_good = _is_guard(text)
        elif key in {"in_spec", "out_spec"}:
            is_good = _is_form(text, of_inputs=key == "in_spec")
        else:
            is_good = bool(_PLAIN.fullmatch(text))
        if not is_good:
            raise ConfigInvalid(f"'{path}' has as '{key}' the text '{text[:_MOST_SHOWN]}', which is not read here")


def _texts(program: object) -> Iterator[tuple[str, str]]:
    """All texts that may get into source code, each with the key under which it stands; the keys, too"""
    waiting: list[tuple[str, object]] = [("", program)]
    while waiting:
        key, item = waiting.pop()
        if isinstance(item, list):
            waiting += ((key, each) for each in item)
        elif isinstance(item, Mapping):
            yield from (("a key", each) for each in item)
            waiting += ((each, value) for each, value in item.items() if each not in _TEXTS and each != "expr_str")
        elif isinstance(item, str):
            yield key, item
        elif key in _NAMES | _OTHERS and item is not None:
            yield key, repr(item)


def _is_guard(text: str) -> bool:
    if len(text) > _MOST_GUARD or not _GUARD.fullmatch(text):
        return False
    try:
        return all(_is_guard_node(node) for node in ast.walk(ast.parse(text, mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _is_guard_node(node: ast.AST) -> bool:
    match node:
        case ast.Name():
            return node.id in _GUARD_NAMES
        case ast.Attribute():
            return node.attr in _GUARD_ATTRIBUTES
        case ast.Call():
            # a text would be one of them
            texts = any(
                isinstance(argument, ast.Constant) and isinstance(argument.value, str) for argument in node.args
            )
            return not node.keywords and not texts
        case ast.Constant():
            plain = isinstance(node.value, str) and _KEY.fullmatch(node.value)
            number = isinstance(node.value, (int, float)) and abs(node.value) <= _LARGEST_NUMBER
            return bool(plain) or number or node.value is None
        case ast.BinOp():
            # a text or a tuple times a number is as long as one likes
            return _is_number(node.left) and _is_number(node.right)
        case _:
            return isinstance(node, _GUARD_NODES)


def _is_number(node: ast.AST) -> bool:
    """One of a size or of an argument, or made of such"""
    match node:
        case ast.Constant():
            is_one = isinstance(node.value, (int, float))
        case ast.BinOp():
            is_one = _is_number(node.left) and _is_number(node.right)
        case ast.UnaryOp():
            is_one = _is_number(node.operand)
        case ast.Attribute():
            is_one = node.attr in {"ndim", "inf"}
        case ast.Call(func=ast.Name(id=called)):
            is_one = called in {"len", "int", "float", "abs"} or all(map(_is_number, node.args))
        case ast.Call(func=ast.Attribute(attr=called)):
            # these two are tuples where they do not say of which dimension
            is_one = called not in {"size", "stride"} or all(map(_is_integer, node.args or [node]))
        case ast.Subscript(value=ast.Attribute(attr="shape") | ast.Call(func=ast.Attribute(attr="size" | "stride"))):
            is_one = _is_integer(node.slice)
        case ast.Subscript():
            # all arguments together are a tuple
            is_one = _is_argument(node) and not (
                isinstance(node.value, ast.Name) and ast.unparse(node.slice) in {"'args'", "'kwargs'"}
            )
        case _:
            is_one = False
    return is_one


def _is_integer(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _is_argument(node: ast.AST) -> bool:
    while isinstance(node, ast.Subscript):
        node = node.value
    return isinstance(node, ast.Name) and node.id == "L"


def _is_form(text: str, *, of_inputs: bool) -> bool:
    try:
        whole: Any = read_json(text)
        waiting: list[object] = [whole[1]]
        while waiting:
            form = waiting.pop()
            if not isinstance(form, Mapping) or form["type"] not in _FORMS:
                return False
            if not _is_context(form["context"], of_inputs=of_inputs):
                return False
            waiting += form["children_spec"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return False
    return True


def _is_context(text: object, *, of_inputs: bool) -> bool:
    """The keys of a dictionary, or nothing"""
    keys = read_json(text) if isinstance(text, str) else text
    if keys is None:
        return True
    if not isinstance(keys, list) or not all(isinstance(key, (str, int)) for key in keys):
        return False
    return not of_inputs or all(_KEY.fullmatch(str(key)) for key in keys)
