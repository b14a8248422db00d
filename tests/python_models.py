"""Models whose engines are objects of a test, on a native core without doors."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from kushi_native import Core, PythonModel, register_errors

from runners import EngineOptions, GrpcOptions, HttpOptions, LogOptions
from runners.errors import factories
from runners.repository.normalize import fill_defaults, fill_instance_groups
from runners.repository.specification import specify
from tests.unit.text import config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from runners.backends import PythonEngine

__all__ = ["ADD_SUB", "TOLD", "Answer", "Plain", "Told", "served"]

ADD_SUB: Final = """
    name: "m" backend: "test" max_batch_size: 8
    input [ { name: "A" data_type: TYPE_FP32 dims: [ 2 ] }, { name: "B" data_type: TYPE_FP32 dims: [ 2 ] } ]
    output [ { name: "SUM" data_type: TYPE_FP32 dims: [ 2 ] }, { name: "DIFFERENCE" data_type: TYPE_FP32 dims: [ 2 ] } ]
"""

TOLD: Final = """
    name: "m" backend: "test" max_batch_size: 8 dynamic_batching { }
    input [ { name: "A" data_type: TYPE_FP32 dims: [ 2 ] } ]
    output [ { name: "PARAMETERS" data_type: TYPE_STRING dims: [ 1 ] } ]
"""

Answer = Any
"""What an engine may answer, right or wrong"""


class Plain:
    """An engine that is one function of the inputs."""

    concurrent = True

    def __init__(self, function: Callable[..., Answer]) -> None:
        self.function = function

    def execute(self, inputs: list[NDArray[Any] | None], wanted: list[bool]) -> Answer:
        return self.function(*inputs)


class Told:
    """An engine that writes the parameters of each of its rows into the only output."""

    concurrent = True
    takes_parameters = True

    def execute(
        self, inputs: list[NDArray[Any] | None], wanted: list[bool], parameters: list[tuple[int, dict[str, Any]]]
    ) -> Answer:
        return [[[json.dumps(given)] for rows, given in parameters for _ in range(rows)]]


class Model:
    def __init__(self, core: Core) -> None:
        self.core = core

    def ask(self, *inputs: NDArray[Any], outputs: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
        return dict(self.core.infer("m", inputs, "", outputs, None, None, 0, ""))

    def ask_two_rows(self) -> dict[str, NDArray[Any]]:
        return self.ask(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32))


@contextmanager
def served(
    *engines: PythonEngine | Told, text: str = ADD_SUB, log: LogOptions | None = None, header_pattern: str | None = None
) -> Iterator[Model]:
    """With one pattern of forwarded headers on all doors"""
    register_errors(factories())
    options = EngineOptions(
        log=log or LogOptions(),
        http=HttpOptions(header_forward_pattern=header_pattern),
        grpc=GrpcOptions(header_forward_pattern=header_pattern),
    )
    core = Core(options.to_json(()))
    try:
        complete = fill_defaults(fill_instance_groups(config(text)))
        specification = specify(complete, version=1, scalars=(), inline=False, load_seconds=0.0)
        loaded = [PythonModel(engine) for engine in engines]
        core.publish("m", [core.start("m", specification.model_dump_json(), loaded)])
        yield Model(core)
    finally:
        core.close()
