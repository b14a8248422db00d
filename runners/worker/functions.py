"""The functions of the API"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import server, strings
from .datatypes import BY_NUMBER, TRITON_STRING_TO_NUMPY, datatype_of
from .given import text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .requests import InferenceRequest
    from .responses import InferenceResponse
    from .tensors import Tensor

__all__ = [
    "deserialize_bytes_tensor",
    "get_input_config_by_name",
    "get_input_tensor_by_name",
    "get_model_dir",
    "get_output_config_by_name",
    "get_output_tensor_by_name",
    "is_model_ready",
    "load_model",
    "numpy_to_triton_type",
    "serialize_byte_tensor",
    "triton_string_to_numpy",
    "triton_to_numpy_type",
    "unload_model",
    "using_decoupled_model_transaction_policy",
]


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Tensor | None:
    """The input of that name, if the request has it"""
    for tensor in inference_request.inputs():
        if tensor.name() == name:
            return tensor
    return None


def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Tensor | None:
    """The output of that name, if the response has it"""
    for tensor in inference_response.output_tensors():
        if tensor.name() == name:
            return tensor
    return None


def get_input_config_by_name(model_config: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """What the configuration says of the input of that name"""
    return _by_name(model_config, "input", name)


def get_output_config_by_name(model_config: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """What the configuration says of the output of that name"""
    return _by_name(model_config, "output", name)


def _by_name(model_config: Mapping[str, Any], side: str, name: str) -> dict[str, Any] | None:
    for tensor in model_config.get(side, ()):
        if tensor["name"] == name:
            found: dict[str, Any] = tensor
            return found
    return None


def using_decoupled_model_transaction_policy(model_config: Mapping[str, Any]) -> bool:
    """Whether the configuration says that the model is decoupled"""
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))


def triton_to_numpy_type(data_type: int) -> Any:
    """The type of NumPy's for a number of Triton's C API"""
    return BY_NUMBER[data_type].numpy


def numpy_to_triton_type(data_type: Any) -> int:
    """The number of Triton's C API for a type of NumPy's"""
    return datatype_of(np.dtype(data_type)).number


def triton_string_to_numpy(triton_type_string: str) -> Any:
    """The type of NumPy's for the `data_type` of a configuration"""
    return TRITON_STRING_TO_NUMPY[triton_type_string]


def serialize_byte_tensor(input_tensor: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """An array of strings as one string, with the length before each of them; nothing for an empty one"""
    if input_tensor.size == 0:
        return None
    if input_tensor.dtype != np.object_ and input_tensor.dtype.kind != "S":
        return None
    whole = np.empty((), dtype=np.object_)
    whole[()] = strings.encoded(input_tensor)
    return whole


def deserialize_bytes_tensor(encoded_tensor: bytes) -> np.ndarray[Any, Any]:
    """The strings of such a string, in one dimension"""
    return strings.decoded(encoded_tensor)


def get_model_dir() -> str:
    """The directory of the version that is served"""
    return server.current().model_dir()


def load_model(model_name: str, config: str = "", files: Mapping[str, bytes] | None = None) -> None:
    """Load a model, with another configuration and other files where they are given"""
    files = {} if files is None else {text(file, "the name of a file"): content for file, content in files.items()}
    server.current().load_model(text(model_name, "model_name"), text(config, "config"), files)


def unload_model(model_name: str, unload_dependents: bool = False) -> None:  # noqa: FBT001, FBT002
    """Unload a model, and the models of an ensemble with it"""
    server.current().unload_model(text(model_name, "model_name"), unload_dependents)


def is_model_ready(model_name: str, model_version: str = "") -> bool:
    """Whether a version of a model serves; any one, where none is said"""
    return server.current().is_model_ready(text(model_name, "model_name"), text(model_version, "model_version"))
