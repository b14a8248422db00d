"""
The side of a process of an isolated model: a class with the surface of a Python model, around the engine that the
backend makes. It opens one model, on one place.
"""

from __future__ import annotations

import json
import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from kushi_native import PythonModel, survive_divisions

from ..errors import InvalidInput, KushiError, Unsupported
from ..failures import failure_of
from ..repository.tensors import scalar_names
from .fitting import backend_of, fit
from .isolated_batches import Batches, Given, as_bfloat16
from .isolation_messages import Order, in_processes, plain_error, plain_fitted
from .steps import Placed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .isolated_batches import Array
    from .isolation_messages import Plain
    from .python_engine import PythonEngine

__all__ = ["IsolatedModel"]

# that of the worker, which is no part of a package there
_API: Any = import_module("triton_python_backend_utils")
_BF16: Any = import_module(".datatypes", _API.__package__).BY_NAME["BF16"]


class IsolatedModel:
    """What the loop of a worker calls"""

    _batches: Batches | None = None

    @staticmethod
    def auto_complete_config(config: Any) -> Any:  # noqa: ANN401 - a ModelConfig of the worker
        """Opens the version that an order is about, and answers what was found in it. Neither is a configuration"""
        logging.getLogger().addHandler(_ToServer())
        survive_divisions()
        plain: Plain = config.as_dict()
        answer = _found(Order.of(plain))
        plain.clear()
        plain.update(answer)
        return config

    def initialize(self, args: dict[str, str]) -> None:
        """Opens the version again, for one instance; what there is to warn of was said when it was opened first"""
        logging.getLogger().addHandler(_ToServer(logging.ERROR))
        survive_divisions()
        order = Order.of(json.loads(args["isolated"]))
        kind = args["model_instance_kind"]
        place = int(args["model_instance_device_id"]) if kind == "GPU" else None
        number = int(args["instance"])
        model = Placed(order.source, order.version, order.config, (place,), (kind == "MODEL",), number)
        try:
            engine, scalars = _engine(model, order, int(args["threads"]))
        except KushiError as error:
            # its text says all
            raise in_processes(error).with_traceback(None) from None
        # behind what the framework does to signals
        survive_divisions()
        self._batches = Batches(engine, order.config, scalars)

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """One response for each request"""
        batches = self._batches
        if batches is None:
            raise RuntimeError("the model is not initialized")
        outcomes = batches.execute([_given(request, batches) for request in requests])
        return [
            _API.InferenceResponse(error=_error(outcome))
            if isinstance(outcome, KushiError)
            else _API.InferenceResponse(_tensors(outcome, batches))
            for outcome in outcomes
        ]

    def finalize(self) -> None:
        """Lets the engine go"""
        self._batches = None


def _error(error: KushiError) -> Any:  # noqa: ANN401 - a TritonError of the worker
    code = _API.TritonError.INVALID_ARG if isinstance(error, InvalidInput) else _API.TritonError.INTERNAL
    return _API.TritonError(str(error), code)


def _found(order: Order) -> Plain:
    try:
        return plain_fitted(
            fit(
                order.source,
                order.config,
                order.version,
                auto_complete=order.auto_complete,
                settings=order.settings,
                limits=order.limits,
            )
        )
    except Exception as error:  # noqa: BLE001 - whatever a file made the framework raise
        return plain_error(failure_of(error, order.source.path))


def _engine(model: Placed, order: Order, threads: int) -> tuple[PythonEngine, list[str]]:
    """What executes it, and its tensors of rank 0"""
    config = model.config
    backend = backend_of(config.backend, order.settings, order.limits)
    prepared = backend.prepare(model)
    path = backend.locate(model.source.versions[model.version], config.default_model_filename)
    bound = prepared.open(path).bind(config)
    # how many was decided for all instances; here it runs once before the first request, and sets what it sets
    bound.threads()
    session, *_ = bound.sessions(threads)
    if not isinstance(session, PythonModel):
        raise Unsupported(f"model '{config.name}' cannot be isolated: Python does not execute it")
    engine: PythonEngine = session.engine
    return engine, scalar_names(bound.outputs or ())


def _given(request: Any, batches: Batches) -> Given:  # noqa: ANN401 - an InferenceRequest of the worker
    tensors = {tensor.name(): tensor for tensor in request.inputs()}
    inputs = [_array(tensors[name]) if name in tensors else None for name in batches.input_names]
    names = request.requested_output_names()
    wanted = [name in names for name in batches.output_names]
    parameters = json.loads(request.parameters() or "{}") if batches.takes_parameters else {}
    return Given(inputs, wanted, parameters)


def _array(tensor: Any) -> Array:  # noqa: ANN401 - a Tensor of the worker
    if tensor.datatype == "BF16":
        array = as_bfloat16(np.ndarray(tensor.shape(), np.uint16, tensor.wire()))
    else:
        array = tensor.as_numpy()
    array.flags.writeable = False
    return array


def _tensors(outputs: Sequence[Array | None], batches: Batches) -> list[Any]:
    tensors = zip(batches.output_names, batches.output_types, outputs, strict=True)
    return [_tensor(name, datatype, array) for name, datatype, array in tensors if array is not None]


def _tensor(name: str, datatype: str, array: Array) -> Any:  # noqa: ANN401 - a Tensor of the worker
    if datatype == "BF16":
        return _API.Tensor.from_wire(name, _BF16, list(array.shape), array.tobytes())
    return _API.Tensor(name, array)


class _ToServer(logging.Handler):
    """What the package logs here stands in the log of the server, at its level"""

    def __init__(self, level: int = logging.WARNING) -> None:
        super().__init__(level)

    def emit(self, record: logging.LogRecord) -> None:
        write = _API.Logger.log_error if record.levelno >= logging.ERROR else _API.Logger.log_warn
        write(self.format(record))
