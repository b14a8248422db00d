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
    ],
)
def test_anything_else_that_python_would_evaluate_is_refused(expression: str) -> None:
    with pytest.raises(ConfigInvalid, match="which is no arithmetic"):
        check_program(sized(expression), Path("model.pt2"))
