"""A tensor without elements ends no server: operators that would end the process do not get it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests import models
from tests.contract import requests
from tests.contract.requests import Infer, Tensor

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.raw_http import Response
    from tests.serving import Server

HIDDEN, WIDTH = 3, 5
GATES: Final = {"LSTM": 4, "GRU": 3}
REFUSED: Final = "has no elements (shape {}), and the model has an operator {}, which takes none such"


def weights(operator: str) -> list[onnx.TensorProto]:
    random, rows = np.random.default_rng(1), GATES[operator] * HIDDEN
    shapes = {"W": (1, rows, WIDTH), "R": (1, rows, HIDDEN)}
    return [numpy_helper.from_array(random.random(shape, np.float32), name) for name, shape in shapes.items()]


def recurrent(operator: str, *, rows_first: bool, steps: int = -1) -> onnx.ModelProto:
    """Y of all steps: [steps, 1, rows, HIDDEN] of x [steps, rows, WIDTH]; or with a batch of its own, a row each."""
    node = helper.make_node(operator, ["x", "W", "R"], ["steps"], hidden_size=HIDDEN)
    second = steps if steps > 0 else "b"
    given, made = models.tensor("x", "FP32", ["a", second, WIDTH]), models.tensor("y", "FP32", ["a", second, HIDDEN])
    first = numpy_helper.from_array(np.array([1]), "first")
    nodes = [node, helper.make_node("Squeeze", ["steps", "first"], ["y"])]
    if rows_first:
        there, back = (helper.make_node("Transpose", [name], [other], perm=[1, 0, 2]) for name, other in TURNED)
        node.input[0], nodes[1].output[0] = "turned", "turned_y"
        nodes = [there, *nodes, back]
    return models.model(nodes, [given], [made], [*weights(operator), first])


TURNED: Final = (("x", "turned"), ("turned_y", "y"))


def in_a_branch() -> onnx.ModelProto:
    """The same where a condition holds"""
    inner = recurrent("LSTM", rows_first=False).graph
    then = helper.make_graph(list(inner.node), "then", [], list(inner.output), list(inner.initializer))
    zeros = helper.make_node("ConstantOfShape", ["shape"], ["none"])
    shape = numpy_helper.from_array(np.array([1, 1, HIDDEN]), "shape")
    otherwise = helper.make_graph([zeros], "else", [], [models.tensor("none", "FP32", ["a", "b", HIDDEN])], [shape])
    branch = helper.make_node("If", ["yes"], ["y"], then_branch=then, else_branch=otherwise)
    yes = numpy_helper.from_array(np.array(True), "yes")
    return models.model([branch], list(inner.input), list(inner.output), [yes])


def stft() -> onnx.ModelProto:
    """Frames of 4 samples"""
    constants = {"step": np.array(2), "window": np.ones(4, np.float32), "length": np.array(4)}
    node = helper.make_node("STFT", ["x", *constants], ["y"])
    given, made = models.tensor("x", "FP32", ["a", "b", 1]), models.tensor("y", "FP32", ["a", "f", 3, 2])
    return models.model(
        [node], [given], [made], [numpy_helper.from_array(value, name) for name, value in constants.items()]
    )


def ask(server: Server, model: str, shape: tuple[int, ...]) -> Response:
    values: list[Any] = np.zeros(shape, np.float32).ravel().tolist()
    headers, body = requests.body(Infer(model, [Tensor("x", "FP32", shape, values=values)]))
    return server.post(requests.path(model), body, headers)


@dataclass(frozen=True)
class Case:
    made: onnx.ModelProto
    operator: str
    good: tuple[int, ...]
    empty: tuple[int, ...]


CASES: Final = {
    "lstm_without_rows": Case(recurrent("LSTM", rows_first=False), "LSTM", (4, 2, WIDTH), (4, 0, WIDTH)),
    "lstm_without_steps": Case(recurrent("LSTM", rows_first=False), "LSTM", (4, 2, WIDTH), (0, 2, WIDTH)),
    "gru_without_rows": Case(recurrent("GRU", rows_first=False), "GRU", (4, 2, WIDTH), (4, 0, WIDTH)),
    "lstm_in_a_branch": Case(in_a_branch(), "LSTM", (4, 2, WIDTH), (4, 0, WIDTH)),
    "stft": Case(stft(), "STFT", (1, 16, 1), (0, 16, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_an_empty_tensor_is_refused_where_an_operator_takes_none(
    repository: Path, start_server: StartServer, name: str
) -> None:
    case = CASES[name]
    models.write(repository, "m", case.made)
    server = start_server(repository)
    assert ask(server, "m", case.good).status == 200
    response = ask(server, "m", case.empty)
    assert response.status == 400
    assert REFUSED.format([*case.empty], case.operator) in response.error
    assert ask(server, "m", case.good).status == 200


@pytest.mark.parametrize("operator", GATES)
@pytest.mark.parametrize("steps", [4, -1])
def test_no_rows_are_answered_without_a_run_where_all_else_is_known(
    repository: Path, start_server: StartServer, operator: str, steps: int
) -> None:
    text = models.config("m", [("x", "FP32", [steps, WIDTH])], [("y", "FP32", [steps, HIDDEN])], max_batch_size=8)
    models.write(repository, "m", recurrent(operator, rows_first=True, steps=steps), text)
    server = start_server(repository)
    response = ask(server, "m", (0, 4, WIDTH))
    if steps > 0:
        assert response.status == 200
        assert response.json()["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [0, 4, HIDDEN], "data": []}]
    else:
        assert response.status == 400
        assert REFUSED.format([0, 4, WIDTH], operator) in response.error
    assert ask(server, "m", (2, 4, WIDTH)).status == 200


def test_other_operators_get_what_is_empty(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "m", models.add_sub(["a", "b"], "FP32"))
    server = start_server(repository)
    empty = [Tensor(name, "FP32", (0, 3), values=[]) for name in ("INPUT0", "INPUT1")]
    headers, body = requests.body(Infer("m", empty))
    response = server.post(requests.path("m"), body, headers)
    assert response.json()["outputs"][0]["shape"] == [0, 3]


@pytest.mark.parametrize("operator", GATES)
def test_openvino_gets_none_either(repository: Path, start_server: StartServer, operator: str) -> None:
    text = 'backend: "openvino" default_model_filename: "model.onnx"'
    models.write(repository, "m", recurrent(operator, rows_first=False), text)
    server = start_server(repository)
    assert ask(server, "m", (4, 2, WIDTH)).status == 200
    for empty in ((4, 0, WIDTH), (0, 2, WIDTH)):
        assert ask(server, "m", empty).status in {200, 400, 500}
        assert ask(server, "m", (4, 2, WIDTH)).status == 200
