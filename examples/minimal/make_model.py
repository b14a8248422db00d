"""Writes model_repository/degrees/1/model.onnx: needs the package onnx"""

from pathlib import Path

from onnx import TensorProto, helper, save

graph = helper.make_graph(
    [
        helper.make_node("Mul", ["celsius", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "zero"], ["fahrenheit"]),
    ],
    "degrees",
    [helper.make_tensor_value_info("celsius", TensorProto.FLOAT, ["n", 1])],
    [helper.make_tensor_value_info("fahrenheit", TensorProto.FLOAT, ["n", 1])],
    [
        helper.make_tensor("scale", TensorProto.FLOAT, [], [1.8]),
        helper.make_tensor("zero", TensorProto.FLOAT, [], [32.0]),
    ],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
save(model, Path(__file__).with_name("model_repository") / "degrees" / "1" / "model.onnx")
