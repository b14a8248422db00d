"""Metrics: what is in them, and where a server answers them"""

from dataclasses import dataclass

from ..integers import INT32_MAX
from .definition import Group, setting
from .kinds import Integer, Port, Switch, Text

__all__ = ["MetricsDoor", "MetricsOptions"]


@dataclass(frozen=True, kw_only=True)
class MetricsOptions(Group):
    """What is in the metrics."""

    title = "metrics"

    cpu: bool = setting("allow-cpu-metrics", Switch(), "Include nv_cpu_* in the metrics.", default=True)
    interval_ms: int = setting(
        "metrics-interval-ms", Integer(1, INT32_MAX), "Milliseconds between two readings of nv_cpu_*.", default=2000
    )


@dataclass(frozen=True, kw_only=True)
class MetricsDoor(Group):
    """Where a server answers metrics."""

    title = "metrics"

    enabled: bool = setting(
        "allow-metrics",
        Switch(),
        "Serve Prometheus metrics on a port of their own; the HTTP port has them too.",
        default=True,
    )
    address: str | None = setting(
        "metrics-address", Text("ADDRESS"), "Address of the metrics port (default: that of HTTP).", default=None
    )
    port: int = setting("metrics-port", Port(), "Port for metrics; 0 takes a free one.", default=8002)
