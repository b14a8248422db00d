"""
What a model's metrics have beside what those of all have: `metric_tags`, `model_metrics` and the parameter
`kushi.monitor`
"""

import itertools
import logging
import re
from math import isfinite

from ..errors import ConfigInvalid
from .messages import ModelConfig

__all__ = ["MONITOR", "first_response_buckets", "monitored_outputs", "tags"]

MONITOR = "kushi.monitor"
_FIRST_RESPONSE = "nv_inference_first_response_histogram_ms"
_MOST_BUCKETS = 256
_MOST_TAGS = 64
_LONGEST_TAG = 256
_TAG = re.compile(r"[A-Za-z0-9_]*", re.ASCII)
_LOG = logging.getLogger(__name__)


def first_response_buckets(config: ModelConfig) -> tuple[float, ...] | None:
    """The model's own bounds of the times to its first response, in milliseconds"""
    buckets = None
    for index, control in enumerate(config.model_metrics.metric_control):
        where = f"model_metrics.metric_control[{index}] of model '{config.name}'"
        family = control.metric_identifier.family
        if not family:
            raise ConfigInvalid(f"{where}: metric_identifier names no family, expected '{_FIRST_RESPONSE}'")
        if family != _FIRST_RESPONSE:
            _LOG.warning("%s has no effect: '%s' is no histogram of the server", where, family)
            continue
        bounds = tuple(control.histogram_options.buckets)
        rise = all(a < b for a, b in itertools.pairwise(bounds))
        if not 0 < len(bounds) <= _MOST_BUCKETS or not rise or not all(map(isfinite, bounds)):
            raise ConfigInvalid(
                f"{where}: the buckets are {list(bounds)}, expected 1 to {_MOST_BUCKETS} numbers that rise"
            )
        buckets = bounds
    return buckets


def monitored_outputs(config: ModelConfig) -> tuple[int, ...]:
    """Positions of the outputs whose classes are counted"""
    if MONITOR not in config.parameters:
        return ()
    outputs = [output.name for output in config.output]
    stated = [name.strip() for name in config.parameters[MONITOR].string_value.split(",")]
    for name in stated:
        if name not in outputs:
            raise ConfigInvalid(
                f"parameter '{MONITOR}' of model '{config.name}': expected outputs of the model, separated by commas "
                f"({', '.join(outputs)}), got '{name}'"
            )
    return tuple(sorted({outputs.index(name) for name in stated}))


def tags(config: ModelConfig) -> tuple[tuple[str, str], ...]:
    """The labels that `metric_tags` become: their names begin with an underscore, as in Triton"""
    # they stand in each line of the model, of which there are dozens for each version
    if len(config.metric_tags) > _MOST_TAGS:
        raise ConfigInvalid(
            f"metric_tags of model '{config.name}': {len(config.metric_tags)} labels, expected at most {_MOST_TAGS}"
        )
    for tag, value in config.metric_tags.items():
        if len(tag) > _LONGEST_TAG or len(value) > _LONGEST_TAG:
            raise ConfigInvalid(
                f"metric_tags of model '{config.name}': '{tag[:_LONGEST_TAG]}' has more than {_LONGEST_TAG} characters"
            )
        if not _TAG.fullmatch(tag):
            raise ConfigInvalid(
                f"metric_tags of model '{config.name}': '{tag}' is no name of a label, expected letters, digits and '_'"
            )
    return tuple((f"_{tag}", value) for tag, value in sorted(config.metric_tags.items()))
