"""
Batches of an isolated model: requests joined for an engine, and its outputs split over them.

It does for a `PythonEngine` what the native core does where the engine is in its process: `engine-python` has the same
texts and the same rules. Only NumPy is needed here.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import EngineFailed, InvalidInput, KushiError
from ..repository.messages import ModelConfig, ModelInput, ModelOutput
from ..repository.tensors import fits, model_dims, protocol_type
from ..worker.datatypes import datatype_of
from ..worker.errors import TritonModelException
from .python_engine import PythonEngine

try:
    from ml_dtypes import bfloat16
except ImportError:
    bfloat16 = None

__all__ = ["Array", "Batches", "Given", "Outcome", "as_bfloat16", "bfloat16"]

Array = NDArray[Any]
Outcome = list[Array | None] | KushiError
"""The outputs of one request, by position; BF16 are the 16 bits of each element"""


@dataclass(frozen=True)
class Given:
    """One request: inputs and wanted outputs by position"""

    inputs: Sequence[Array | None]
    wanted: Sequence[bool]
    parameters: Mapping[str, Any]


class _Failure(Exception):
    """Of a batch; `of_data` where the data of one of its requests may be the reason"""

    def __init__(self, text: str, *, of_data: bool, of_client: bool = False) -> None:
        super().__init__(text)
        self.of_data = of_data
        self.of_client = of_client
        """The engine says that the request is wrong, and not what became of it"""


class Batches:
    """Executes the batches of one instance, one at a time"""

    def __init__(self, engine: PythonEngine, config: ModelConfig, scalars: Collection[str] = ()) -> None:
        """scalars: the tensors of rank 0 in the model, which clients see as [1]"""
        self._engine: Any = engine
        self._keeps_state: bool = getattr(engine, "keeps_state", False)
        self._answers_later: bool = getattr(engine, "answers_later", False)
        self.takes_parameters: bool = getattr(engine, "takes_parameters", False)
        self._model = config.name
        self._is_batched = config.max_batch_size > 0
        self.input_names = [tensor.name for tensor in config.input]
        self.output_names = [tensor.name for tensor in config.output]
        self.output_types = [protocol_type(tensor.data_type) for tensor in config.output]
        self._output_dims = [_dims(tensor, scalars) for tensor in config.output]

    def execute(self, requests: Sequence[Given]) -> list[Outcome]:
        """The outcome of each request. Where they fail together, each is executed once more alone"""
        if not self._is_batched and len(requests) > 1:
            return [outcome for request in requests for outcome in self.execute([request])]
        try:
            return [*self._together(requests)]
        except _Failure as failure:
            if len(requests) > 1 and failure.of_data and not self._keeps_state:
                return [outcome for request in requests for outcome in self.execute([request])]
            # a text that is no Unicode cannot be sent
            text = str(failure).encode("utf-8", "replace").decode()
            return [InvalidInput(text) if failure.of_client else EngineFailed(text)] * len(requests)

    def _together(self, requests: Sequence[Given]) -> Iterator[list[Array | None]]:
        rows = [self._rows(request) for request in requests]
        wanted = [any(asked) for asked in zip(*(request.wanted for request in requests), strict=True)]
        arguments: list[Any] = [[_joined(arrays) for arrays in zip(*(one.inputs for one in requests), strict=True)]]
        arguments.append(wanted)
        if self.takes_parameters:
            given = zip(rows, (request.parameters for request in requests), strict=True)
            arguments.append([(count, dict(parameters)) for count, parameters in given])
        outputs = self._outputs(self._answer(arguments), wanted, sum(rows))
        if len(requests) == 1:
            yield outputs
            return
        for begin, end in pairwise(accumulate(rows, initial=0)):
            yield [None if output is None else output[begin:end] for output in outputs]

    def _rows(self, request: Given) -> int:
        first = next((array for array in request.inputs if array is not None), None)
        return len(first) if self._is_batched and first is not None else 1

    def _answer(self, arguments: Sequence[Any]) -> Any:  # noqa: ANN401 - whatever the engine returns
        try:
            answer = self._engine.execute(*arguments)
            return answer.wait() if self._answers_later else answer
        except BaseException as error:  # noqa: BLE001 - an exit too ends a batch, and not the process
            of_data, of_client = bool(getattr(error, "of_data", True)), isinstance(error, InvalidInput)
            raise _Failure(self._described(error), of_data=of_data, of_client=of_client) from None

    def _described(self, error: BaseException) -> str:
        kind = type(error)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        try:
            text = str(error)
        except Exception:  # noqa: BLE001 - it is the engine's, and may raise anything
            return f"model '{self._model}' raised {name}, which cannot be printed"
        if isinstance(error, (EngineFailed, InvalidInput)):
            return text
        return f"model '{self._model}' raised {name}: {text}" if text else f"model '{self._model}' raised {name}"

    def _outputs(self, answer: Any, wanted: Sequence[bool], rows: int) -> list[Array | None]:  # noqa: ANN401 - as above
        described = zip(
            self.output_names, self.output_types, self._output_dims, wanted, self._items(answer), strict=True
        )
        return [
            self._output(item, name, datatype, [rows, *dims] if self._is_batched else dims) if asked else None
            for name, datatype, dims, asked, item in described
        ]

    def _items(self, answer: Any) -> Sequence[Any]:  # noqa: ANN401 - as above
        names = ", ".join(f"'{name}'" for name in self.output_names)
        if isinstance(answer, dict):
            for name in answer:
                if name not in self.output_names:
                    raise self._answered(f"an output {name!r}, expected {names}")
            return [answer.get(name) for name in self.output_names]
        if not isinstance(answer, (list, tuple)):
            kind = type(answer)
            of = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
            raise self._answered(f"an object of type {of}, expected a list of its outputs")
        if len(answer) != len(self.output_names):
            raise self._answered(f"{len(answer)} outputs, expected {len(self.output_names)}: {names}")
        return answer

    def _answered(self, text: str) -> _Failure:
        return _Failure(f"model '{self._model}' answered {text}", of_data=True)

    def _output(self, item: Any, name: str, datatype: str, expected: Sequence[int]) -> Array:  # noqa: ANN401 - as above
        of = f"output '{name}' of model '{self._model}'"
        if item is None:
            text = f"model '{self._model}' left output '{name}' out, which was asked for"
            raise _Failure(text, of_data=True)
        try:
            is_text = datatype == "BYTES" and isinstance(item, list)
            array = np.asarray(item, dtype=object) if is_text else np.asarray(item)
            if array.dtype.kind == "T":
                array = array.astype(object)
            got = datatype_of(array.dtype).name
        except TritonModelException as error:
            raise _Failure(f"{of}: {error}", of_data=True) from None
        except Exception as error:  # noqa: BLE001 - whatever the object raises that is to be an array
            raise _Failure(self._described(error), of_data=True) from None
        if not fits(array.shape, expected):
            text = f"{of} has shape {list(array.shape)}, expected {[*expected]}"
            raise _Failure(text, of_data=True)
        if datatype == "BF16" and got in {"BF16", "FP32"}:
            return _halves(array)
        if got != datatype:
            text = f"output '{name}' has data-type {got}, the model configuration says {datatype}"
            raise _Failure(text, of_data=False)
        if array.dtype.kind == "O" and (odd := _no_string(array)):
            raise _Failure(f"{of} has {odd}, expected bytes or str", of_data=True)
        return array


def as_bfloat16(halves: NDArray[np.uint16]) -> Array:
    """The values of which these are the bits"""
    if bfloat16 is not None:
        return halves.view(bfloat16)
    return (halves.astype(np.uint32) << 16).view(np.float32)


def _halves(array: Array) -> NDArray[np.uint16]:
    """The bits of BF16: of float32 the upper half, to the nearest, and to even between two"""
    whole = np.ascontiguousarray(array).reshape(array.shape)
    if array.dtype != np.float32:
        return whole.view(np.uint16)
    bits = whole.view(np.uint32)
    upper = bits >> 16
    rounded = (bits + np.uint32(0x7FFF) + (upper & 1)) >> 16
    rounded = np.where(np.isnan(whole), upper | 0x40, rounded)
    return np.where(bits & 0xFFFF, rounded, upper).astype(np.uint16)


def _joined(arrays: Sequence[Array | None]) -> Array | None:
    """All requests of a batch have the same inputs, with the same dimensions behind the first"""
    given = [array for array in arrays if array is not None]
    if len(given) < 2:
        return given[0] if given else None
    joined: Array = np.concatenate(given)
    joined.flags.writeable = False
    return joined


def _dims(tensor: ModelInput | ModelOutput, scalars: Collection[str]) -> list[int]:
    return [] if tensor.name in scalars and not tensor.HasField("reshape") else [*model_dims(tensor)]


def _no_string(array: Array) -> str:
    """The first element that is neither bytes nor str"""
    for index, element in enumerate(array.ravel().tolist()):
        if not isinstance(element, (bytes, str)):
            what = "None" if element is None else f"an object of type {type(element).__name__}"
            return f"{what} at element {index}"
    return ""
