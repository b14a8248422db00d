"""A model's own metrics, on the server's metrics port for as long as the model holds them"""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING, Any

from . import server
from .errors import TritonModelException
from .given import items, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Metric", "MetricFamily", "MetricKind"]


class MetricKind(enum.Enum):
    """How values become a metric"""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric:
    """One series of a family"""

    __slots__ = ("_family", "_handle", "_server")

    def __init__(
        self, family: MetricFamily, labels: Mapping[str, str] | None = None, buckets: Sequence[float] | None = None
    ) -> None:
        labels = {} if labels is None else labels
        if not isinstance(labels, dict):
            raise TypeError(f"expected a dictionary as labels, got {type(labels).__name__}")
        labels = {text(label, "a label"): text(value, "the value of a label") for label, value in labels.items()}
        self._family = family
        self._server = server.current()
        if family.kind is MetricKind.HISTOGRAM:
            if buckets is None:
                raise TritonModelException("Bucket boundaries not found in Metric args.")
            buckets = _bounds(items(buckets, "buckets"))
        elif buckets is not None:
            raise TritonModelException(f"Unexpected args found in {family.kind.value} Metric constructor.")
        self._handle = self._server.metric(family.handle, labels, buckets)

    def increment(self, value: float) -> None:
        """Add to it; a counter takes nothing below 0"""
        text = "Failed to increment metric value: "
        self._check(MetricKind.COUNTER, MetricKind.GAUGE, does="Increment", text=text)
        value = _number(value)
        if self._family.kind is MetricKind.COUNTER and not value >= 0:
            raise TritonModelException(
                f"{text}TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative values."
            )
        self._server.metric_change(self._handle, "increment", value)

    def set(self, value: float) -> None:
        """Say what a gauge stands at"""
        self._check(MetricKind.GAUGE, does="Set", text="Failed to set metric value: ")
        self._server.metric_change(self._handle, "set", _number(value))

    def observe(self, value: float) -> None:
        """Give a histogram one more value"""
        self._check(MetricKind.HISTOGRAM, does="Observe", text="Failed to observe metric value: ")
        self._server.metric_change(self._handle, "observe", _number(value))

    def value(self) -> float:
        """What it stands at; a histogram stands at nothing"""
        self._check(MetricKind.COUNTER, MetricKind.GAUGE, does="Value", text="Failed to get metric value: ")
        return self._server.metric_value(self._handle)

    def _check(self, *kinds: MetricKind, does: str, text: str) -> None:
        kind = self._family.kind
        if kind not in kinds:
            raise TritonModelException(f"{text}TRITONSERVER_METRIC_KIND_{kind.name} does not support {does}")

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._server.metric_drop(self._handle)


class MetricFamily:
    """Metrics of one name, kind and description"""

    __slots__ = ("_server", "handle", "kind")

    COUNTER = MetricKind.COUNTER
    GAUGE = MetricKind.GAUGE
    HISTOGRAM = MetricKind.HISTOGRAM

    handle: Any
    kind: MetricKind

    def __init__(self, name: str, description: str, kind: MetricKind) -> None:
        name = text(name, "the name of a metric family")
        description = text(description, "the description of a metric family")
        if not isinstance(kind, MetricKind):
            raise TypeError(f"expected a kind of MetricFamily's, got {type(kind).__name__}")
        self.kind = kind
        self._server = server.current()
        self.handle = self._server.metric_family(name, description, kind.value)

    def Metric(  # noqa: N802 - its name in the API
        self, labels: Mapping[str, str] | None = None, buckets: Sequence[float] | None = None
    ) -> Metric:
        """The metric with these labels, which is the same one for the same labels"""
        return Metric(self, labels, buckets)

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            self._server.metric_drop(self.handle)


def _number(value: Any) -> float:
    if not hasattr(value, "__float__"):
        raise TypeError(f"expected a number, got {type(value).__name__}")
    return float(value)


def _bounds(buckets: Sequence[Any]) -> list[float]:
    """The upper bounds of buckets; the server has one above them all"""
    bounds = [_number(bound) for bound in buckets]
    if bounds and bounds[-1] == math.inf:
        del bounds[-1]
    if not all(map(math.isfinite, bounds)) or any(not low < high for low, high in zip(bounds, bounds[1:])):
        raise TritonModelException("the bounds of buckets must be numbers that rise")
    return bounds
