"""
The sizes in an exported program: arithmetic, and of numbers that stay small.

PyTorch reads a size as a Python expression, and computes with the sizes of tensors in integers of any length. Neither
can be interrupted, and both keep all other Python from running: so how large a number may become is worked out before
anything computes it, from the lengths of what goes in.
"""

import ast
from collections.abc import Mapping, Sequence

__all__ = ["BITS_OF_A_SIZE", "MOST_BITS", "bits_of_result", "is_arithmetic"]

BITS_OF_A_SIZE = 64
MOST_BITS = 4096
"""The longest number that may come about"""
_MOST_CHARACTERS = 16384
_MOST_DEPTH = 100
_MOST_EXPONENT = 64
_TOO_LONG = MOST_BITS + 1

_RAISED = frozenset({"Pow", "PowByNatural", "FloatPow", "LShift", "RoundDecimal", "pow", "lshift"})
"""Their second argument says how often, which has to be known"""
_SUMMED = frozenset({"Add", "Sub", "add", "sub"})
_MULTIPLIED = frozenset({"Mul", "mul", "Rational"})
_FUNCTIONS = frozenset(
    {
        *("Abs", "Add", "And", "CeilDiv", "CeilToInt", "CleanDiv", "Eq", "Equality", "FloatPow", "FloatTrueDiv"),
        *("FloorDiv", "FloorToInt", "Ge", "GreaterThan", "Gt", "ITE", "Identity", "IntTrueDiv", "Integer", "LShift"),
        *("Le", "LessThan", "Lt", "Max", "Min", "Mod", "ModularIndexing", "Mul", "Ne", "Not", "Or", "Pow"),
        *("PowByNatural", "PythonMod", "RShift", "Rational", "RoundDecimal", "RoundToInt", "StrictGreaterThan"),
        *("StrictLessThan", "ToFloat", "TruncToFloat", "TruncToInt", "Unequality", "Where", "Xor", "ceiling", "floor"),
    }
)
"""What PyTorch builds sizes of, as SymPy writes it"""


class _NoArithmetic(Exception):
    pass


def is_arithmetic(expression: str) -> bool:
    """Whether a size is arithmetic, of a form that PyTorch writes, and stays small"""
    if len(expression) > _MOST_CHARACTERS:
        return False
    try:
        return _bits(ast.parse(expression, mode="eval").body, _MOST_DEPTH) <= MOST_BITS
    except (_NoArithmetic, SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def bits_of_result(function: str, bits: Sequence[int], exponent: float | None) -> int:
    """
    How long the result of a function may be whose arguments have these lengths; `exponent` is its second argument where
    that is a known number
    """
    if function in _RAISED:
        if exponent is None or not abs(exponent) <= _MOST_EXPONENT:
            return _TOO_LONG
        return min(_TOO_LONG, (bits[0] if bits else 1) * max(1, int(abs(exponent)) + 1))
    if function in _MULTIPLIED:
        return min(_TOO_LONG, sum(bits))
    longest = max(bits, default=1)
    return min(_TOO_LONG, longest + len(bits) if function in _SUMMED else longest)


_BINARY: Mapping[type[ast.operator], str] = {
    ast.Add: "Add",
    ast.Sub: "Add",
    ast.Mult: "Mul",
    ast.Pow: "Pow",
    ast.LShift: "LShift",
}


def _bits(node: ast.expr, depth: int) -> int:
    leaf = _bits_of_leaf(node)
    if leaf is not None:
        return leaf
    if depth == 0:
        raise _NoArithmetic
    function, terms = _parts(node)
    exponent = _number(terms[1]) if len(terms) == 2 else None
    return bits_of_result(function, [_bits(term, depth - 1) for term in terms], exponent)


def _bits_of_leaf(node: ast.expr) -> int | None:
    match node:
        case ast.Constant(value=bool() | int() as number):
            return max(1, number.bit_length())
        case ast.Constant(value=float()):
            return BITS_OF_A_SIZE
        case ast.Name(id=name) if not name.startswith("_"):
            return BITS_OF_A_SIZE
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str() as name)], keywords=keywords):
            plain = name.isidentifier() and all(isinstance(keyword.value, ast.Constant) for keyword in keywords)
            return BITS_OF_A_SIZE if plain else None
    return None


def _parts(node: ast.expr) -> tuple[str, list[ast.expr]]:
    """The function that is applied, and to what; no name for one whose result is no longer than what goes in"""
    match node:
        case ast.Call(func=ast.Name(id=name), args=terms, keywords=[]) if name in _FUNCTIONS:
            return name, terms
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY.get(type(op), ""), [left, right]
        case ast.UnaryOp(operand=operand):
            return "", [operand]
        case ast.BoolOp(values=terms):
            return "", terms
        case ast.Compare(left=left, comparators=terms):
            return "", [left, *terms]
    raise _NoArithmetic


def _number(node: ast.expr) -> float | None:
    """A known number, as it is written or as SymPy writes it"""
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return _number(operand)
        case ast.Call(func=ast.Name(id="Integer"), args=[argument]):
            return _number(argument)
        case ast.Call(func=ast.Name(id="Rational"), args=[numerator, ast.Constant(value=int())]):
            return _number(numerator)
    return None
