"""
The frameworks that execute models, one module each, imported when a model asks for it.

A backend module has one function, `load(source, config, version, *, auto_complete, settings) -> Loaded`. What
executes is native, or an object of Python's that the native core calls: a `PythonEngine`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

from kushi_native import OnnxModel, PythonModel

from ..errors import Unsupported
from ..repository.backend_config import NO_SETTINGS
from ..repository.layout import ModelSource
from ..repository.messages import ModelConfig
from ..repository.specification import Specification

__all__ = ["Backend", "Loaded", "NativeModel", "PythonEngine", "backend"]

NativeModel = OnnxModel | PythonModel
"""What the native core makes engines of"""

_MODULES = {"onnxruntime": ".onnxruntime.backend", "pytorch": ".torch.backend"}
_EXTRAS = {"pytorch": "torch"}


class PythonEngine(Protocol):
    """
    What the native core calls to execute a model: once for each batch, on a thread of its own for each instance, with
    the GIL held. `kushi_native.PythonModel` wraps it for the core.
    """

    @property
    def concurrent(self) -> bool:
        """Whether several instances may call the object at the same time; read once. If not, each needs its own"""
        ...

    def execute(self, inputs: list[Any], wanted: list[bool]) -> Sequence[Any] | dict[str, Any]:
        """
        The outputs of one batch: in the order of the configuration, or by name; None for one that is not wanted.

        `inputs` are arrays of NumPy, in the order of the configuration; None is an optional input left out. Where the
        model has a `max_batch_size`, the requests of the batch are joined along the first dimension. The arrays show
        the memory of the requests: they cannot be written to, and one that is kept beyond the call keeps that memory.
        BYTES are arrays of `bytes`; BF16 are arrays of `ml_dtypes.bfloat16` where that package is installed, or else
        of float32.

        An output is an array or what `numpy.asarray` makes one of, of the data type and shape of the configuration,
        with as many rows as the inputs; it is copied. For BF16 float32 will do, and lists of `str` or `bytes` for
        BYTES.

        An object with an attribute `takes_parameters` that is True, read once, gets a third argument: for each request
        of the batch its number of rows, and the parameters that its client gave by their names.

        Whatever it raises fails the requests of the batch with EngineFailed, and nothing else.
        """
        ...


@dataclass(frozen=True)
class Loaded:
    """One version, ready to be handed to the core: one session for all instances, or one for each"""

    specification: Specification
    sessions: Sequence[NativeModel]
    intra_op_threads: int


class Backend(Protocol):
    """What a backend module offers"""

    def load(
        self,
        source: ModelSource,
        config: ModelConfig,
        version: int,
        *,
        auto_complete: bool,
        settings: Mapping[str, str] = NO_SETTINGS,
    ) -> Loaded:
        """
        Opens one version of a model whose configuration is checked but not yet completed. `settings` are those of the
        backend, checked.
        """
        ...


def backend(name: str) -> Backend:
    """The backend that config.pbtxt calls `name`"""
    if name not in _MODULES:
        raise Unsupported(f"backend '{name}' is not supported by this version, expected one of {', '.join(_MODULES)}")
    try:
        return cast("Backend", import_module(_MODULES[name], __package__))
    except ImportError as error:
        extra = f": pip install 'kushi[{_EXTRAS[name]}]'" if name in _EXTRAS else ""
        raise Unsupported(f"backend '{name}' cannot be loaded: {error}{extra}") from error
