"""Divisions without a result: clients may send them to any model that divides"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

import numpy as np
import pytest
import tritonclient.http as triton
from onnx import helper

from tests import models

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer


@pytest.mark.parametrize("datatype", ["INT32", "INT64"])
@pytest.mark.parametrize(("operator", "least"), [("Div", 1), ("Mod", 0)])
def test_it_has_a_result_and_the_server_goes_on(
    repository: Path, start_server: StartServer, operator: str, least: int, datatype: str
) -> None:
    names = [("A", datatype, [-1]), ("B", datatype, [-1])]
    graph = [helper.make_node(operator, ["A", "B"], ["Y"])]
    inputs = [models.tensor(name, datatype, ["n"]) for name in "AB"]
    made = models.model(graph, inputs, [models.tensor("Y", datatype, ["n"])])
    models.write(
        repository, "divided", made, models.config("divided", names, [("Y", datatype, [-1])], max_batch_size=0)
    )
    server = start_server(repository)
    dtype = np.dtype(datatype.lower())
    lowest = np.iinfo(dtype).min
    # many, as loops over many have other instructions
    numbers, divisors = (np.array(row * 40, dtype) for row in ([lowest, 7, lowest, lowest], [-1, 2, 1, -1]))
    with triton.InferenceServerClient(f"{server.http[0]}:{server.http[1]}") as client:
        asked = [triton.InferInput(name, [160], datatype) for name in "AB"]
        for tensor, values in zip(asked, (numbers, divisors), strict=True):
            tensor.set_data_from_numpy(values)
        answer = client.infer("divided", asked).as_numpy("Y")
        assert answer.tolist() == ([lowest, 3, lowest, lowest] if least else [0, 1, 0, 0]) * 40
        # what has no result at all is still an error, of this request alone
        asked[1].set_data_from_numpy(np.zeros(160, dtype))
        with pytest.raises(triton.InferenceServerException):
            client.infer("divided", asked)
        assert client.is_server_live()


def test_a_division_by_zero_that_no_operator_looks_for_ends_no_server(
    repository: Path, start_server: StartServer
) -> None:
    """STFT divides by what it is given as the length of a frame"""
    inputs = [
        models.tensor("X", "FP32", ["rows", "samples", 1]),
        models.tensor("STEP", "INT64", [1]),
        models.tensor("LENGTH", "INT64", [1]),
    ]
    nodes = [
        helper.make_node("Squeeze", ["STEP"], ["step"]),
        helper.make_node("Squeeze", ["LENGTH"], ["length"]),
        helper.make_node("STFT", ["X", "step", "", "length"], ["Y"], onesided=1),
    ]
    made = models.model(nodes, inputs, [models.tensor("Y", "FP32", ["rows", "frames", "bins", 2])])
    names = [("X", "FP32", [-1, -1, 1]), ("STEP", "INT64", [1]), ("LENGTH", "INT64", [1])]
    outputs = [("Y", "FP32", [-1, -1, -1, 2])]
    models.write(repository, "stft", made, models.config("stft", names, outputs, max_batch_size=0))
    server = start_server(repository)
    with triton.InferenceServerClient(f"{server.http[0]}:{server.http[1]}") as client:
        for length in (0, 8):
            given = [np.ones((1, 16, 1), np.float32), np.array([1]), np.array([length])]
            asked = [
                triton.InferInput(name, array.shape, datatype)
                for (name, datatype, _), array in zip(names, given, strict=True)
            ]
            for tensor, array in zip(asked, given, strict=True):
                tensor.set_data_from_numpy(array)
            # whatever it answers to the first one
            with nullcontext() if length else suppress(triton.InferenceServerException):
                client.infer("stft", asked)
        assert client.is_server_live()
