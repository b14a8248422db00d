"""Parameters of requests and responses: a dictionary as models give them, JSON as they read them"""

from __future__ import annotations

import json
from typing import Any

from .errors import TritonModelException

__all__ = ["as_json"]


def as_json(parameters: Any) -> str:
    """The JSON of parameters, which are checked; no parameters are an empty object"""
    if parameters is None:
        return "{}"
    if not isinstance(parameters, dict):
        raise TritonModelException(f"Parameters must be a dict, got {type(parameters)}")
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TritonModelException(f"Expect parameters keys to have type str, found type {type(key)}")
        if not isinstance(value, (bool, int, str)):
            raise TritonModelException(f"Expect parameters values to have type bool/int/str, found type {type(value)}")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise TritonModelException(f"Expect parameters values to have 64 bits at most, found {value}")
    text = json.dumps(parameters, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TritonModelException(f"Expect parameters to be text in UTF-8: {error}") from None
    return text
