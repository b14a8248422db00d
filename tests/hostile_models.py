"""ONNX models that take all that they are given: time, memory, files."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from tests import models

__all__ = ["ENDLESS", "counting", "doubling", "ending", "endless", "with_weights_in"]

ENDLESS = 2**62
"""So many steps of a loop take longer than anybody waits"""
_SHAPE = ("batch", 1)


def endless() -> onnx.ModelProto:
    """Counts to 2^62 before it answers."""
    nodes = [
        helper.make_node("ReduceMax", ["INPUT0"], ["state"], keepdims=0),
        helper.make_node("Loop", ["trips", "true", "state"], ["final"], body=_step()),
        helper.make_node("Add", ["INPUT0", "final"], ["OUTPUT0"]),
    ]
    initializers = [
        helper.make_tensor("trips", TensorProto.INT64, [], [ENDLESS]),
        helper.make_tensor("true", TensorProto.BOOL, [], [True]),
    ]
    tensors = [models.tensor(name, "FP32", _SHAPE) for name in ("INPUT0", "OUTPUT0")]
    return models.model(nodes, tensors[:1], tensors[1:], initializers)


def counting() -> onnx.ModelProto:
    """Counts to INPUT0, the largest of a batch, before it answers with INPUT0."""
    nodes = [
        helper.make_node("ReduceMax", ["INPUT0"], ["trips"], keepdims=0),
        helper.make_node("Loop", ["trips", "true", "zero"], ["final"], body=_step()),
        helper.make_node("Cast", ["final"], ["none"], to=TensorProto.INT64),
        helper.make_node("Add", ["INPUT0", "none"], ["OUTPUT0"]),
    ]
    initializers = [
        helper.make_tensor("true", TensorProto.BOOL, [], [True]),
        helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0]),
    ]
    tensors = [models.tensor(name, "INT64", _SHAPE) for name in ("INPUT0", "OUTPUT0")]
    return models.model(nodes, tensors[:1], tensors[1:], initializers)


def _step() -> onnx.GraphProto:
    return helper.make_graph(
        [
            helper.make_node("Identity", ["condition"], ["condition_out"]),
            helper.make_node("Add", ["state", "state"], ["state_out"]),
        ],
        "step",
        [
            models.tensor("step", "INT64", []),
            models.tensor("condition", "BOOL", []),
            models.tensor("state", "FP32", []),
        ],
        [models.tensor("condition_out", "BOOL", []), models.tensor("state_out", "FP32", [])],
    )


def doubling(times: int) -> onnx.ModelProto:
    """Functions each of which calls the next one twice: 2^times operators once they are written out."""
    domain, opsets = "test", [helper.make_opsetid("", models.OPSET), helper.make_opsetid("test", 1)]
    last = helper.make_function(domain, f"F{times}", ["X"], ["Y"], [helper.make_node("Neg", ["X"], ["Y"])], opsets)
    functions = [last]
    for number in range(times):
        nodes = [
            helper.make_node(f"F{number + 1}", ["X"], ["Z"], domain=domain),
            helper.make_node(f"F{number + 1}", ["Z"], ["Y"], domain=domain),
        ]
        functions.append(helper.make_function(domain, f"F{number}", ["X"], ["Y"], nodes, opsets))
    graph = helper.make_graph(
        [helper.make_node("F0", ["INPUT0"], ["OUTPUT0"], domain=domain)],
        "graph",
        [models.tensor("INPUT0", "FP32", _SHAPE)],
        [models.tensor("OUTPUT0", "FP32", _SHAPE)],
    )
    return helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=models.IR_VERSION)


def with_weights_in(file: str) -> onnx.ModelProto:
    """OUTPUT0 = INPUT0 + weights, which lie in another file."""
    weights = helper.make_tensor("weights", TensorProto.FLOAT, [1024], bytes(4096), raw=True)
    onnx.external_data_helper.set_external_data(weights, file, offset=0, length=4096)
    weights.ClearField("raw_data")
    node = helper.make_node("Add", ["INPUT0", "weights"], ["OUTPUT0"])
    tensors = [models.tensor(name, "FP32", ("batch", 1024)) for name in ("INPUT0", "OUTPUT0")]
    graph = helper.make_graph([node], "graph", tensors[:1], tensors[1:], [weights])
    opsets = [helper.make_opsetid("", models.OPSET)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=models.IR_VERSION)


def ending_with_rows(rows: int, datatype: str = "FP32") -> onnx.ModelProto:
    """Ends its process for a batch of exactly so many rows; for a smaller one it answers."""
    nodes = [
        helper.make_node("Cast", ["INPUT0"], ["X"], to=TensorProto.FLOAT),
        helper.make_node("Shape", ["X"], ["shape"]),
        helper.make_node("Slice", ["shape", "zero", "one"], ["count"]),
        helper.make_node("Sub", ["least", "count"], ["left"]),
        *_ending_without(rows="left", added_to="X"),
    ]
    numbers = {"zero": 0, "one": 1, "four": 4, "five": 5, "least": rows}
    return _ending_model(nodes, numbers, datatype)


def ending_after_an_error() -> onnx.ModelProto:
    """An error for zeros; ones end its process."""
    nodes = [
        helper.make_node("ReduceMax", ["INPUT0"], ["most"], keepdims=0),
        helper.make_node("Cast", ["most"], ["number"], to=TensorProto.INT64),
        helper.make_node("Sub", ["one", "number"], ["index"]),
        # of one element: there is none at 1
        helper.make_node("Gather", ["table", "index"], ["count"]),
        *_ending_without(rows="count", added_to="INPUT0"),
    ]
    return _ending_model(nodes, {"one": 1, "four": 4, "five": 5, "table": 0}, "FP32")


def _ending_without(rows: str, added_to: str) -> list[onnx.NodeProto]:
    """Ends the process where a tensor says that there are no rows"""
    return [
        helper.make_node("Concat", ["four", rows, "five"], ["sizes"], axis=0),
        helper.make_node("ConstantOfShape", ["sizes"], ["rows"]),
        *_states("rows", added_to),
    ]


def _states(rows: str, added_to: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("LSTM", [rows, "weights", "recurrence"], ["states"], hidden_size=2),
        helper.make_node("ReduceSum", ["states"], ["sum"], keepdims=0),
        helper.make_node("Add", [added_to, "sum"], ["OUTPUT0"]),
    ]


def _ending_model(nodes: list[onnx.NodeProto], numbers: dict[str, int], datatype: str) -> onnx.ModelProto:
    initializers = [helper.make_tensor(name, TensorProto.INT64, [1], [value]) for name, value in numbers.items()]
    tensors = [models.tensor("INPUT0", datatype, _SHAPE), models.tensor("OUTPUT0", "FP32", _SHAPE)]
    return models.model(nodes, tensors[:1], tensors[1:], [*initializers, *_weights()])


def _weights() -> list[onnx.TensorProto]:
    return [
        helper.make_tensor("weights", TensorProto.FLOAT, [1, 8, 5], [0.0] * 40),
        helper.make_tensor("recurrence", TensorProto.FLOAT, [1, 8, 2], [0.0] * 16),
    ]


def ending(*, at_load: bool) -> onnx.ModelProto:
    """Ends its process: ONNX Runtime does so where an LSTM has no rows, when it folds constants or when it runs."""
    if at_load:
        empty = [helper.make_node("Identity", ["nothing"], ["rows"])]
    else:
        empty = [
            helper.make_node("Slice", ["INPUT0", "zero", "zero", "one"], ["none"]),
            helper.make_node("Reshape", ["none", "shape"], ["rows"], allowzero=1),
        ]
    nodes = [*empty, *_states("rows", "INPUT0")]
    initializers = [
        helper.make_tensor("nothing", TensorProto.FLOAT, [4, 0, 5], []),
        helper.make_tensor("shape", TensorProto.INT64, [3], [4, 0, 5]),
        helper.make_tensor("zero", TensorProto.INT64, [1], [0]),
        helper.make_tensor("one", TensorProto.INT64, [1], [1]),
        *_weights(),
    ]
    tensors = [models.tensor(name, "FP32", _SHAPE) for name in ("INPUT0", "OUTPUT0")]
    return models.model(nodes, tensors[:1], tensors[1:], initializers)
