"""What the parameters of config.pbtxt say about a forest, in the words of Triton's backend"""

import re
from dataclasses import dataclass
from math import isfinite

from ...errors import ConfigInvalid
from ...integers import MAX_THREADS
from ...repository.messages import ModelConfig
from ...repository.specification import parameter
from ...repository.values import BOOLEANS, boolean
from .descriptor import FILES

__all__ = ["ForestOptions", "read_options"]

_THRESHOLD = 0.5
_NEGATIVE = re.compile(r"-[0-9]{1,9}")


@dataclass(frozen=True)
class ForestOptions:
    """`None` leaves it to the model"""

    format: str
    """One of `FILES`, or nothing"""
    is_classifier: bool | None
    probabilities: bool
    """Whether a classifier answers these, and not the class"""
    threshold: float
    unknown_fields: bool
    """Whether a file of XGBoost may have some"""
    threads: int
    """0 leaves them to the policy"""


def read_options(config: ModelConfig) -> ForestOptions:
    """The options of a model, each checked"""
    is_classifier = _switch(config, "is_classifier")
    older = _switch(config, "output_class")
    return ForestOptions(
        format=_format(config),
        is_classifier=is_classifier if older is None else older,
        probabilities=_switch(config, "predict_proba") is True,
        threshold=_threshold(config),
        unknown_fields=_switch(config, "xgboost_allow_unknown_field") is True,
        threads=_threads(config),
    )


def _format(config: ModelConfig) -> str:
    text = _text(config, "model_type")
    if text and text not in FILES:
        raise ConfigInvalid(
            f"parameter 'model_type' of model '{config.name}': expected one of {', '.join(FILES)}, got '{text}'"
        )
    return text


def _threshold(config: ModelConfig) -> float:
    text = _text(config, "threshold")
    try:
        value = float(text or _THRESHOLD)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise ConfigInvalid(f"parameter 'threshold' of model '{config.name}': expected a number, got '{text}'")
    return value


def _threads(config: ModelConfig) -> int:
    """As in Triton's backend, numbers below 1 leave them open"""
    if _NEGATIVE.fullmatch(_text(config, "cpu_nthread").strip()):
        return 0
    return parameter(config, "cpu_nthread", 0, most=MAX_THREADS)


def _switch(config: ModelConfig, key: str) -> bool | None:
    text = _text(config, key)
    value = boolean(text) if text else None
    if text and value is None:
        raise ConfigInvalid(f"parameter '{key}' of model '{config.name}': expected {BOOLEANS}, got '{text}'")
    return value


def _text(config: ModelConfig, key: str) -> str:
    return config.parameters[key].string_value if key in config.parameters else ""
