"""A version in a core of its own, where it is asked before it serves anybody"""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np
from kushi_native import Core
from numpy.typing import NDArray

from .. import verbs
from ..backends.pipeline import Loaded
from ..repository.specification import unhurried
from ..samples import Row
from ..settings import EngineOptions, MetricsOptions

__all__ = ["Trial"]

_OPTIONS = EngineOptions(io_threads=1, metrics=MetricsOptions(cpu=False, gpu=False))


class Trial:
    """A core with one version; it is closed by whoever waits for it, from any thread"""

    def __init__(self) -> None:
        self._core = Core(_OPTIONS.to_json((), logs=False))
        self._name = ""
        self._outputs: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """What is still asked ends"""
        self._core.close()

    def publish(self, loaded: Loaded) -> Mapping[str, Any]:
        """The metadata of the version, which can be asked now"""
        self._name = name = loaded.config.name
        # it waits for nobody's resources, nor for company, and no request is refused or late
        specification = loaded.specification.model_copy(update={"rates": (), **unhurried(loaded.specification)})
        self._core.publish(name, [self._core.start(name, specification.model_dump_json(), loaded.sessions)])
        asked = verbs.model("ModelMetadata", name, loaded.specification.version)
        metadata = verbs.document(asked, self._core.call(asked.name, asked.arguments_json()))
        self._outputs = [tensor["name"] for tensor in metadata["outputs"]]
        return metadata

    def ask(self, row: Row) -> dict[str, NDArray[Any]]:
        """What it answers, all outputs by their names"""
        result = self._core.infer(self._name, (row,), "", None, None, None, 0, "")
        return {output: np.array(result[output]) for output in self._outputs}
