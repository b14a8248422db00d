"""What the native core asks of a model that Python executes"""

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from ..errors import EngineFailed

__all__ = ["Later", "ModelFailed", "Outputs", "PythonEngine"]

Outputs = Sequence[Any] | dict[str, Any]
"""In the order of the configuration, or by name"""


class ModelFailed(EngineFailed):
    """A failure of the model or its device, which no data of a request is the reason of"""

    of_data: ClassVar[bool] = False


class Later(Protocol):
    """A batch that has begun, of an engine that answers later"""

    def wait(self) -> Outputs:
        """The outputs, once they are there"""
        ...


class PythonEngine(Protocol):
    """
    What the native core calls to execute a model: once for each batch, on a thread of its own for each instance, with
    the GIL held. `kushi_native.PythonModel` wraps it for the core.
    """

    @property
    def concurrent(self) -> bool:
        """Whether several instances may call the object at the same time; read once. If not, each needs its own"""
        ...

    def execute(self, inputs: list[Any], wanted: list[bool]) -> Outputs | Later:
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

        Whatever it raises is EngineFailed to the clients, but for InvalidInput, which says what is wrong with a
        request. Where requests were joined, each is executed once more alone first, so that only those fail whose own
        data is the reason. That does not happen where the exception has an
        attribute `of_data` that is False, as `ModelFailed` has, and where the object has an attribute `keeps_state`
        that is True, read once: its answers depend on earlier batches.

        An object with an attribute `answers_later` that is True, read once, answers with another object, whose method
        `wait` gives the outputs. It is called on another thread, once, while this one may be called for the next batch
        already; for the one behind that it is called when the first has its outputs. `concurrent` is False then, and
        what `wait` raises ends the batch. So that the GPU is busy while Python is, `wait` should give up the GIL.
        """
        ...
