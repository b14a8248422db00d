from pathlib import Path
from typing import Any

import pytest

from runners.backends.torch.operators import check_program
from runners.errors import ConfigInvalid


def calling(target: str) -> dict[str, Any]:
    node = {"target": target, "inputs": [], "outputs": [], "metadata": {}}
    return {"graph_module": {"graph": {"nodes": [node]}}}


def sized(expression: str) -> dict[str, Any]:
    return {"tensor_values": {"x": {"sizes": [{"as_expr": {"expr_str": expression}}]}}}


@pytest.mark.parametrize(
    "target",
    [
        "torch.ops.aten.linear.default",
        "torch.ops.aten._softmax.default",
        "torch.ops.aten.__and__.Tensor",
        "torch.ops.higher_order.cond",
        "torch.ops.torchvision.nms.default",
        "torch.ops.aten.profiled.default",
        "torch.ops.quantized.add.default",
        "torch.sym_max",
        "math.trunc",
        "_operator.floordiv",
    ],
)
def test_operators_pass(target: str) -> None:
    check_program(calling(target), Path("model.pt2"))


@pytest.mark.parametrize(
    "target",
    [
        "torch.ops.aten.from_file.default",
        "torch.ops.aten.from_file",
        "torch.ops.aten.save.default",
        "torch.ops.image.read_file.default",
        "torch.ops.image.write_file",
        "torch.ops.debugprims.load_tensor.default",
        "torch.ops._c10d_functional.broadcast.default",
        "torch.ops.symm_mem.one_shot_all_reduce.default",
    ],
)
def test_what_reads_files_or_talks_to_others_is_refused(target: str) -> None:
    for program in (calling(target), {"inputs": [{"as_operator": target}]}):
        with pytest.raises(ConfigInvalid) as raised:
            check_program(program, Path("model.pt2"))
        assert str(raised.value) == f"'model.pt2' calls '{target}', which does more than compute"


@pytest.mark.parametrize(
    "target",
    [
        "torch.ops.load_library",
        "torch.os.system",
        "torch.serialization.load",
        "torch.ops.aten.__class__.mro",
        "torch.ops.__init__.f",
        "torch.ops.aten.add.default.__globals__",
        "_operator.attrgetter",
        "_operator.methodcaller",
        "math.__loader__",
        "builtins.eval",
        "os.system",
        "#anything",
        "",
    ],
)
def test_anything_else_that_a_path_may_lead_to_is_refused(target: str) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        check_program({"deep": [calling(target)]}, Path("model.pt2"))
    assert str(raised.value) == f"'model.pt2' calls '{target}', which is no operator of PyTorch"


@pytest.mark.parametrize(
    "expression",
    [
        "Symbol('s29', positive=True, integer=True)",
        "2*s0 + 1",
        "Max(1, s0)",
        "Mul(Integer(2), Symbol('s29', positive=True, integer=True))",
        "(s0//2) - -1",
        "Eq(s0, 4) | (s1 > 2.5)",
        "Pow(Symbol('s29', positive=True, integer=True), Integer(2))",
        "s0**2 * s1**-1",
        "Mul(Pow(s0, Rational(1, 2)), 1 << 20)",
        f"Add({', '.join(f'FloorDiv(Add(s{n}, Integer(-1)), Integer(2))' for n in range(200))})",
    ],
)
def test_arithmetic_passes(expression: str) -> None:
    check_program(sized(expression), Path("model.pt2"))


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')",
        "eval('1')",
        "exec('1')",
        "().__class__",
        "s0.real",
        "Symbol('a b')",
        "Symbol(eval('1'))",
        "Function('f')",
        "S('eval(1)')",
        "[x for x in s0]",
        "lambda: 1",
        "'text'",
        "s0 if s1 else s2",
        "1 +",
        "(" * 5000,
        "9**9**9**9",
        "Pow(9, 999999999)",
        "PowByNatural(Integer(9), s0)",
        "(((((9**64)**64)**64)**64)**64)",
        "*".join(["s0"] * 100),
        "1 << 10**9",
        "LShift(1, 1000000000)",
        "RoundDecimal(5, -1000000000)",
        "9" * 4000,
        "-" * 3000 + "1",
        "+".join(["s0"] * 9000),
        "Permutation(1000000000)",
        "Matrix(100000, 100000, 1)",
        "FallingFactorial(999999999, 999999999)",
        "Mul(*Symbol('s0'))",
    ],
)
def test_anything_else_that_python_would_evaluate_is_refused(expression: str) -> None:
    with pytest.raises(ConfigInvalid, match="which is no arithmetic"):
        check_program(sized(expression), Path("model.pt2"))


def computing(*nodes: tuple[str, list[Any], str]) -> dict[str, Any]:
    listed = [
        {
            "target": target,
            "inputs": [{"name": "", "arg": argument, "kind": 1} for argument in arguments],
            "outputs": [{"as_sym_int": {"as_name": result}}],
        }
        for target, arguments, result in nodes
    ]
    return {"graph_module": {"graph": {"nodes": listed}}}


def size(name: str) -> dict[str, Any]:
    return {"as_sym_int": {"as_name": name}}


def test_sizes_that_a_program_computes_pass_where_they_stay_small() -> None:
    check_program(
        computing(
            ("_operator.mul", [size("s0"), {"as_int": 12}], "a"),
            ("_operator.pow", [size("a"), {"as_int": 2}], "b"),
            ("_operator.floordiv", [size("b"), size("s1")], "c"),
            ("torch.sym_max", [size("c"), {"as_int": 1}], "d"),
        ),
        Path("model.pt2"),
    )


@pytest.mark.parametrize(
    "nodes",
    [
        [("_operator.pow", [{"as_int": 9}, {"as_int": 999999999}], "a")],
        [("_operator.pow", [{"as_int": 2}, size("s0")], "a")],
        [("_operator.lshift", [{"as_int": 1}, {"as_sym_int": {"as_int": 10**12}}], "a")],
        [("_operator.mul", [size(f"s{n}")] * 2, f"s{n + 1}") for n in range(40)],
    ],
)
def test_sizes_that_may_grow_without_bound_are_refused(nodes: list[tuple[str, list[Any], str]]) -> None:
    with pytest.raises(ConfigInvalid, match="that may have more than 4096 bits"):
        check_program(computing(*nodes), Path("model.pt2"))


def test_functions_of_math_whose_results_have_any_length_are_refused() -> None:
    for name in ("factorial", "comb", "perm", "prod"):
        with pytest.raises(ConfigInvalid, match=f"calls 'math.{name}', which is no operator of PyTorch"):
            check_program(calling(f"math.{name}"), Path("model.pt2"))
