"""
A model's own metrics, on the server's metrics port.

A metric is there for as long as the model holds it or its family. What is refused has Triton's words, which come from
three places there: its API in Python, its server, and the library of Prometheus below that.
"""

from __future__ import annotations

import enum
import json
import math
import re
from typing import TYPE_CHECKING, Any

from . import server
from .errors import TritonModelException
from .given import text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Metric", "MetricFamily", "MetricKind"]

_NAME = re.compile("(?!__)[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile("(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_SURROGATE = re.compile("[\ud800-\udfff]")


class MetricKind(enum.Enum):
    """How values become a metric"""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class _Series:
    """What the server shows, for as long as this lives"""

    __slots__ = ("_server", "handle")

    def __init__(self, asked: server.Server, handle: Any) -> None:
        self._server = asked
        self.handle = handle

    def __del__(self) -> None:
        self._server.metric_drop(self.handle)


class Metric:
    """One series of a family"""

    __slots__ = ("_family", "_handle", "_series", "_server")

    def __init__(
        self, family: MetricFamily, labels: Mapping[str, str] | None = None, buckets: Sequence[float] | None = None
    ) -> None:
        if labels is not None and not isinstance(labels, dict):
            raise TritonModelException("Failed to create metric. Labels must be a dictionary.")
        # a number is a name of a label as well, which JSON makes a text
        labels = json.loads(json.dumps(labels)) or {}
        buckets = _given(buckets, family.kind)
        self._family = family
        self._server = server.current()
        what = "Error when creating Metric"
        if reason := _wrong_label(labels) or _wrong_bounds(buckets):
            raise self._refusal(what, reason)
        try:
            self._handle = self._server.metric(family.handle, labels, buckets)
        except TritonModelException as error:
            raise self._refusal(what, str(error)) from None
        self._series = _Series(self._server, self._handle)
        family.hold(self._series)

    def increment(self, value: float) -> None:
        """Add to it; a counter takes nothing below 0"""
        what = "Failed to increment metric value"
        self._check(MetricKind.COUNTER, MetricKind.GAUGE, does="Increment", what=what)
        value = _number(value)
        if self._family.kind is MetricKind.COUNTER and not value >= 0:
            reason = "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative values."
            raise self._refusal(what, reason)
        self._server.metric_change(self._handle, "increment", value)

    def set(self, value: float) -> None:
        """Say what a gauge stands at"""
        self._check(MetricKind.GAUGE, does="Set", what="Failed to set metric value")
        self._server.metric_change(self._handle, "set", _number(value))

    def observe(self, value: float) -> None:
        """Give a histogram one more value"""
        self._check(MetricKind.HISTOGRAM, does="Observe", what="Failed to observe metric value")
        self._server.metric_change(self._handle, "observe", _number(value))

    def value(self) -> float:
        """What it stands at; a histogram stands at nothing"""
        self._check(MetricKind.COUNTER, MetricKind.GAUGE, does="Value", what="Failed to get metric value")
        return self._server.metric_value(self._handle)

    def _check(self, *kinds: MetricKind, does: str, what: str) -> None:
        kind = self._family.kind
        if kind not in kinds:
            raise self._refusal(what, f"TRITONSERVER_METRIC_KIND_{kind.name} does not support {does}")

    def _refusal(self, what: str, reason: str) -> TritonModelException:
        return _refusal(self._server, what, reason)


class MetricFamily:
    """Metrics of one name, kind and description"""

    __slots__ = ("_series", "_server", "handle", "kind")

    COUNTER = MetricKind.COUNTER
    GAUGE = MetricKind.GAUGE
    HISTOGRAM = MetricKind.HISTOGRAM

    handle: Any
    kind: MetricKind
    # of each metric that was made, by its handle
    _series: dict[Any, _Series]

    def __init__(self, name: str, description: str, kind: MetricKind) -> None:
        name = text(name, "the name of a metric family")
        description = text(description, "the description of a metric family")
        if not isinstance(kind, MetricKind):
            raise TypeError(f"expected a kind of MetricFamily's, got {type(kind).__name__}")
        self.kind = kind
        self._series = {}
        self._server = server.current()
        what = "Error when creating MetricFamily"
        if not _NAME.fullmatch(name):
            raise _refusal(self._server, what, "Invalid metric name")
        try:
            self.handle = self._server.metric_family(name, description, kind.value)
        except TritonModelException as error:
            raise _refusal(self._server, what, str(error)) from None

    def Metric(  # noqa: N802 - its name in the API
        self, labels: Mapping[str, str] | None = None, buckets: Sequence[float] | None = None
    ) -> Metric:
        """The metric with these labels, which is the same one for the same labels"""
        return Metric(self, labels, buckets)

    def hold(self, series: _Series) -> None:
        """A metric that the model does not keep is there for as long as its family"""
        self._series.setdefault(series.handle, series)

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            self._server.metric_drop(self.handle)


def _refusal(asked: server.Server, what: str, reason: str) -> TritonModelException:
    """As Triton's server says it to the process of a model"""
    name = asked.instance_name()
    return TritonModelException(f"{what}: Failed to process the request for model '{name}', message: {reason}")


def _number(value: Any) -> float:
    if not hasattr(value, "__float__"):
        raise TypeError(f"expected a number, got {type(value).__name__}")
    return float(value)


def _given(buckets: Any, kind: MetricKind) -> list[float] | None:
    """The upper bounds of buckets; the server has one above them all"""
    if buckets is None:
        if kind is MetricKind.HISTOGRAM:
            raise TritonModelException("Failed to create metric. Missing required buckets.")
        return None
    if not isinstance(buckets, list):
        raise TritonModelException("Failed to create metric. Buckets must be a list.")
    if kind is not MetricKind.HISTOGRAM:
        raise TritonModelException("Failed to create metric. Unexpected buckets found.")
    bounds = [_number(bound) for bound in buckets]
    if bounds and bounds[-1] == math.inf:
        del bounds[-1]
    return bounds


def _wrong_label(labels: Mapping[str, Any]) -> str:
    """Why they cannot be the labels of a metric, if so"""
    if not all(isinstance(value, str) for value in labels.values()):
        return "attempt to access JSON non-string as string"
    if not all(map(_LABEL.fullmatch, labels)):
        return "Invalid label name"
    if any(_SURROGATE.search(value) for value in labels.values()):
        return "Invalid label value: it is no text that UTF-8 can write"
    return ""


def _wrong_bounds(bounds: Sequence[float] | None) -> str:
    """Why they cannot be the bounds of buckets, if so"""
    bounds = bounds or []
    if not all(map(math.isfinite, bounds)) or any(not low < high for low, high in zip(bounds, bounds[1:])):
        return "Bucket Boundaries must be strictly sorted"
    return ""
