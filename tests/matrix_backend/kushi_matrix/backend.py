"""Loads a matrix from a file of JSON, and multiplies by it with NumPy"""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from kushi_native import PythonModel
from numpy.typing import NDArray

from runners import ConfigInvalid
from runners.backends import Backend, Bound, Opened, Placed, Prepared, TensorInfo, complete, parameter
from runners.repository.messages import ModelConfig


class MatrixBackend(Backend):
    """NumPy, on the CPU"""

    def prepare(self, model: Placed) -> Prepared:
        scale = parameter(model.config, "scale", 1, most=1000)
        return Prepared(partial(Matrix, scale=scale, digits=int(self.settings.get("digits", "6"))))


class Matrix(Opened):
    """A matrix in memory, once for all instances"""

    def __init__(self, path: Path, *, scale: int, digits: int) -> None:
        try:
            self._matrix = np.asarray(json.loads(path.read_text()), np.float32)
        except ValueError as error:
            raise ConfigInvalid(f"matrix '{path}' cannot be read: {error}") from None
        if self._matrix.ndim != 2:
            raise ConfigInvalid(f"matrix '{path}': expected 2 dimensions, got {self._matrix.ndim}")
        rows, columns = self._matrix.shape
        self._inputs = [TensorInfo("X", "FP32", (-1, rows))]
        self._outputs = [TensorInfo("Y", "FP32", (-1, columns))]
        self._scale, self._digits = scale, digits

    def complete(self, config: ModelConfig, default_max_batch_size: int) -> ModelConfig:
        return complete(config, self._inputs, self._outputs, default_max_batch_size)

    def bind(self, config: ModelConfig) -> Bound:
        return Bound(self._sessions, inputs=self._inputs, outputs=self._outputs)

    def _sessions(self, _threads: int) -> list[PythonModel]:
        return [PythonModel(Product(self._matrix * self._scale, self._digits))]


class Product:
    """What executes a batch; see PythonEngine"""

    concurrent = True

    def __init__(self, matrix: NDArray[np.float32], digits: int) -> None:
        self._matrix = matrix
        self._digits = digits

    def execute(self, inputs: list[Any], _wanted: list[bool]) -> list[NDArray[np.float32]]:
        return [np.round(inputs[0] @ self._matrix, self._digits)]
