"""
What clients get of the service, as its OpenAPI document shows it, from what the models answer.

A module of its own, so that the process in which uploads are read need not import pydantic.
"""

# not as strings: BentoML and pydantic read the annotations
from typing import Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from .digits import Box, answer

__all__ = ["Activity", "Digit", "Found"]

_PROBABILITIES: list[JsonValue] = [0.0, 0.0, 0.0, 0.01, 0.0, 0.0, 0.0, 0.98, 0.0, 0.01]


def _example(**values: JsonValue) -> ConfigDict:
    return ConfigDict(json_schema_extra={"example": values})


class Digit(BaseModel):
    """A handwritten digit"""

    model_config = _example(digit=7, probabilities=_PROBABILITIES)

    digit: int = Field(ge=0, le=9)
    probabilities: list[float] = Field(description="Of the digits 0 to 9")

    @classmethod
    def of(cls, logits: npt.NDArray[np.float32]) -> Self:
        """From the logits [1, 10] of the model `digits`"""
        (digit,), (probabilities,) = answer(logits)
        return cls(digit=digit, probabilities=probabilities.tolist())


class Found(Digit):
    """A digit on a page"""

    model_config = _example(digit=7, probabilities=_PROBABILITIES, left=40, top=32, right=72, bottom=80)

    left: int
    top: int
    right: int
    bottom: int

    @classmethod
    def at(cls, box: Box, logits: npt.NDArray[np.float32]) -> Self:
        return cls(**dict(Digit.of(logits)), **box._asdict())


class Activity(BaseModel):
    """What is heard in one chunk of 16 ms"""

    seconds: float = Field(description="Where the chunk begins")
    probability: float = Field(description="Of a tone")
