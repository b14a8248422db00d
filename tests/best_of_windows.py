"""Writes `model_repository/best`, which keeps the likeliest character of each window.

`python -m tests.best_of_windows`
"""

from __future__ import annotations

from typing import Final

from onnx import TensorProto, helper

from tests.serving import ROOT

__all__ = ["BEST", "best"]

BEST: Final = ROOT / "model_repository/best/1/model.onnx"


def best() -> bytes:
    windows = ["lines", "windows"]
    nodes = [
        # one pass for both, and twice as fast as ArgMax and ReduceMax
        helper.make_node("TopK", ["scores", "one"], ["top_shares", "top_ids"], axis=2),
        helper.make_node("Squeeze", ["top_shares", "axis"], ["shares"]),
        helper.make_node("Squeeze", ["top_ids", "axis"], ["ids"]),
    ]
    graph = helper.make_graph(
        nodes,
        "best",
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [*windows, "characters"])],
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, windows),
            helper.make_tensor_value_info("shares", TensorProto.FLOAT, windows),
        ],
        [
            helper.make_tensor("one", TensorProto.INT64, [1], [1]),
            helper.make_tensor("axis", TensorProto.INT64, [1], [2]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.producer_name = "kushi"
    serialized: bytes = model.SerializeToString()
    return serialized


if __name__ == "__main__":
    BEST.parent.mkdir(parents=True, exist_ok=True)
    BEST.write_bytes(best())
