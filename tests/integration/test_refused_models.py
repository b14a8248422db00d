"""Models that cannot be served as they are written: each is refused when it is loaded, with a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from runners import Engine, EngineOptions, ModelOptions
from tests import models

if TYPE_CHECKING:
    from pathlib import Path

INPUT = '{ name: "%s" data_type: TYPE_INT32 dims: [ 16 ] }'
TWO_INPUTS = f"input [ {INPUT % 'INPUT0'}, {INPUT % 'INPUT1'} ]"
ONE_OUTPUT = f"output [ {INPUT % 'OUTPUT0'} ]"
TOLERANT = EngineOptions(exit_on_error=False)


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'


def reason(repository: Path, text: str, *, auto_complete: bool = True) -> str:
    """Why a model with this configuration does not load; empty where it does"""
    models.write(repository, "m", models.add_sub(["batch", 16]), text)
    with Engine(
        repository, options=EngineOptions(exit_on_error=False, models=ModelOptions(strict_config=not auto_complete))
    ) as engine:
        return str(engine.failures.get("m", ""))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            parameter("kushi.max_queue_bytes", "9" * 23),
            (
                "parameter 'kushi.max_queue_bytes' of model 'm': expected a non-negative integer of at most "
                f"9223372036854775807, got '{'9' * 23}'"
            ),
        ),
        (
            parameter("intra_op_thread_count", "9" * 23),
            (
                "parameter 'intra_op_thread_count' of model 'm': expected a non-negative integer of at most 1024, "
                f"got '{'9' * 23}'"
            ),
        ),
        (
            parameter("inter_op_thread_count", "100000"),
            (
                "parameter 'inter_op_thread_count' of model 'm': expected a non-negative integer of at most 1024, "
                "got '100000'"
            ),
        ),
        (
            parameter("intra_op_thread_count", "1_0"),
            (
                "parameter 'intra_op_thread_count' of model 'm': expected a non-negative integer of at most 1024, "
                "got '1_0'"
            ),
        ),
        (
            parameter("intra_op_thread_count", "١"),
            "parameter 'intra_op_thread_count' of model 'm': expected a non-negative integer of at most 1024, got '١'",
        ),
        (
            "instance_group [ { kind: KIND_CPU count: 1000000 } ]",
            "model 'm' has 1000000 instances, at most 1024 are supported by this version",
        ),
        (
            "instance_group [ { kind: KIND_CPU count: 600 }, { kind: KIND_CPU count: 600 } ]",
            "model 'm' has 1200 instances, at most 1024 are supported by this version",
        ),
        (
            f"instance_group [ {{ kind: KIND_CPU count: 1000 }} ] {parameter('intra_op_thread_count', '1000')}",
            "model 'm' has 1000 instances of 1000 threads, at most 4096 threads are supported by this version",
        ),
        ("max_batch_size: 1_0", "field 'max_batch_size': expected a number, got 1_0"),
        (
            f"max_batch_size: 4 {TWO_INPUTS} output [ {INPUT % 'OUTPUT0'}, {INPUT % 'OUTPUT0'} ]",
            "model output 'OUTPUT0' is specified more than once for m",
        ),
        (
            f"max_batch_size: 4 input [ {INPUT % 'INPUT0'}, {INPUT % 'INPUT0'} ] {ONE_OUTPUT}",
            "model input 'INPUT0' is specified more than once for m",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_with_file_and_field(tmp_path: Path, text: str, expected: str) -> None:
    got = reason(tmp_path, text)
    assert got.startswith(str(tmp_path / "m" / "config.pbtxt"))
    assert expected in got


def test_a_model_without_outputs_is_refused(tmp_path: Path) -> None:
    got = reason(tmp_path, f"max_batch_size: 4 {TWO_INPUTS}", auto_complete=False)
    assert got == f"{tmp_path}/m/config.pbtxt: model must specify at least one output for m"


def test_a_byte_order_mark_is_no_part_of_the_configuration(tmp_path: Path) -> None:
    assert reason(tmp_path, "\N{ZERO WIDTH NO-BREAK SPACE}max_batch_size: 4") == ""


def of_any_rank(kind: str) -> onnx.ModelProto:
    """An identity on tensors whose number of dimensions the file does not say"""
    node = helper.make_node(kind, ["X"], ["Y"])
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "XY"]
    graph = helper.make_graph([node], "graph", declared[:1], declared[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", models.OPSET)], ir_version=models.IR_VERSION)


def test_tensors_of_unknown_rank_are_not_taken_for_numbers(tmp_path: Path) -> None:
    models.write(tmp_path, "m", of_any_rank("Identity"))
    with Engine(tmp_path, options=TOLERANT) as engine:
        assert str(engine.failures["m"]) == (
            f"{tmp_path}/m: autofill failed for model 'm': the model file does not say how many dimensions tensor 'X' "
            "has, expected the inputs and outputs in config.pbtxt"
        )


@pytest.mark.parametrize("dims", [[-1], [2, 3], [-1, 2, -1]])
@pytest.mark.parametrize("max_batch_size", [0, 4])
def test_tensors_of_unknown_rank_have_the_dimensions_of_the_configuration(
    tmp_path: Path, dims: list[int], max_batch_size: int
) -> None:
    text = models.config("m", [("X", "FP32", dims)], [("Y", "FP32", dims)], max_batch_size=max_batch_size)
    models.write(tmp_path, "m", of_any_rank("Abs"), text)
    shape = [3 if dim < 0 else dim for dim in ([-1] if max_batch_size else []) + dims]
    given = -np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    with Engine(tmp_path) as engine:
        assert np.array_equal(engine.m.run(given)["Y"], -given)
