"""
What tritonclient calls `InferInput`, in its HTTP and in its gRPC package, as arrays; `InferRequestedOutput` as names
and class counts.

Loaded when a program passes one, so that tritonclient is there.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tritonclient.utils import deserialize_bytes_tensor, triton_to_np_dtype

from ..errors import InvalidInput, Unsupported

__all__ = ["array", "class_count", "named_array"]


def array(given: Any) -> NDArray[Any]:  # noqa: ANN401 - one of two classes without types
    """The data of an InferInput in its shape, without a copy of numbers that are binary"""
    # tritonclient has no public way to the data
    tensor = given._get_tensor()  # noqa: SLF001
    if isinstance(tensor, dict):
        content, parameters = given._get_binary_data(), tensor.get("parameters", {})  # noqa: SLF001
        values = tensor.get("data")
    else:
        content, parameters, values = given._get_content(), tensor.parameters, None  # noqa: SLF001
    if "shared_memory_region" in parameters:
        raise Unsupported(f"input {given.name()!r} lies in shared memory, expected one with data")
    if content is None and values is None:
        raise InvalidInput(f"input {given.name()!r} has no data, expected set_data_from_numpy to be called")
    return _elements(given.datatype(), content, values).reshape(tuple(given.shape()))


def named_array(given: Any) -> tuple[str, NDArray[Any]]:  # noqa: ANN401 - as above
    """The name of an InferInput, and its data"""
    return given.name(), array(given)


def class_count(wanted: Any) -> tuple[str, int]:  # noqa: ANN401 - one of two classes without types
    """The name of an InferRequestedOutput, and how many of its best classes it asks for; 0 is the output as it is"""
    tensor = wanted._get_tensor()  # noqa: SLF001 - as above
    name = str(wanted.name())
    parameters = tensor.get("parameters", {}) if isinstance(tensor, dict) else tensor.parameters
    if "shared_memory_region" in parameters:
        raise Unsupported(f"output {name!r} is wanted in shared memory, expected one that is answered")
    if "classification" not in parameters:
        return name, 0
    count = parameters["classification"]
    return name, count if isinstance(tensor, dict) else count.int64_param


def _elements(datatype: str, content: bytes | None, values: list[Any] | None) -> NDArray[Any]:
    if content is None:
        return np.array(values, dtype=triton_to_np_dtype(datatype))
    if datatype == "BYTES":
        strings: NDArray[Any] = deserialize_bytes_tensor(content)
        return strings
    return np.frombuffer(content, dtype=triton_to_np_dtype(datatype))
