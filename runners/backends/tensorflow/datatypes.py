"""TensorFlow's data types and those of the protocol"""

from typing import Any

import tensorflow as tf

from ...errors import Unsupported

__all__ = ["name_of"]

_NAMES = {
    tf.bool: "BOOL",
    tf.uint8: "UINT8",
    tf.uint16: "UINT16",
    tf.uint32: "UINT32",
    tf.uint64: "UINT64",
    tf.int8: "INT8",
    tf.int16: "INT16",
    tf.int32: "INT32",
    tf.int64: "INT64",
    tf.float16: "FP16",
    tf.float32: "FP32",
    tf.float64: "FP64",
    tf.bfloat16: "BF16",
    tf.string: "BYTES",
}


def name_of(dtype: Any, tensor: str) -> str:  # noqa: ANN401 - a type of TensorFlow's, which has no types to check by
    """The protocol's name of the type of `tensor`"""
    if dtype not in _NAMES:
        raise Unsupported(f"tensor '{tensor}' has data type {dtype.name}, which the protocol does not have")
    return _NAMES[dtype]
