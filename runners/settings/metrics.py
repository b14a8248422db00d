"""Metrics: what is in them, and where a server answers them"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Self

from ..environment import visible_gpus
from ..errors import ConfigInvalid
from ..integers import INT32_MAX
from .definition import Group, Naming, Setting, setting
from .kinds import Integer, Kind, Port, Several, Switch, Text

__all__ = ["MetricsDoor", "MetricsOptions"]

# as --metrics-config has them
_CONFIGURED = ("counter_latencies", "histogram_latencies", "summary_latencies", "summary_quantiles")
_MOST_QUANTILES = 64


class _Config(Several):
    """Settings as tritonserver takes them"""

    separator = ";"
    separators = "semicolons"

    def __init__(self) -> None:
        super().__init__("SETTING=VALUE")


class _Quantiles(Kind):
    """Quantiles as tritonserver takes them, each with the error that it may have"""

    placeholder = "Q[:ERROR],..."
    expected = "quantiles from 0 to 1 like 0.5:0.05,0.99:0.001"

    @property
    def expected_object(self) -> str:
        return f"a tuple of 1 to {_MOST_QUANTILES} numbers from 0 to 1"

    def parse(self, text: str) -> tuple[float, ...] | None:
        try:
            stated = [[float(part) for part in one.split(":")] for one in text.split(",")]
        except ValueError:
            return None
        # no comparison with a NaN is true
        if not all(len(one) == 1 or (len(one) == 2 and 0 <= one[1] <= 1) for one in stated):
            return None
        return tuple(quantile for quantile, *_ in stated)

    def accepts(self, value: object) -> bool:
        return (
            isinstance(value, tuple)
            and 0 < len(value) <= _MOST_QUANTILES
            and all(isinstance(one, int | float) and not isinstance(one, bool) and 0 <= one <= 1 for one in value)
        )


@dataclass(frozen=True, kw_only=True)
class MetricsOptions(Group):
    """What is in the metrics."""

    title = "metrics"
    switches: ClassVar[Mapping[str, Setting]] = MappingProxyType(
        {
            "config": Setting(
                "metrics-config",
                _Config(),
                "Any of these settings, as tritonserver takes them: counter_latencies, histogram_latencies, "
                "summary_latencies and summary_quantiles. It wins over their own flags.",
                default=(),
            )
        }
    )

    cpu: bool = setting("allow-cpu-metrics", Switch(), "Include nv_cpu_* in the metrics.", default=True)
    gpu: bool = setting(
        "allow-gpu-metrics",
        Switch(),
        "Include nv_gpu_* and nv_energy_consumption in the metrics, where there are GPUs of NVIDIA.",
        default=True,
    )
    interval_ms: int = setting(
        "metrics-interval-ms",
        Integer(1, INT32_MAX),
        "Milliseconds between two readings of nv_cpu_*, nv_gpu_* and nv_energy_consumption.",
        default=2000,
    )
    counter_latencies: bool = setting(
        "metrics-counter-latencies",
        Switch(),
        "Include the sums of latencies, nv_inference_*_duration_us.",
        default=True,
    )
    histogram_latencies: bool = setting(
        "metrics-histogram-latencies",
        Switch(),
        "Include how long decoupled models take to their first response, nv_inference_first_response_histogram_ms.",
        default=False,
    )
    summary_latencies: bool = setting(
        "metrics-summary-latencies",
        Switch(),
        "Include quantiles of latencies over the last minute, nv_inference_*_summary_us.",
        default=False,
    )
    summary_quantiles: tuple[float, ...] = setting(
        "metrics-summary-quantiles",
        _Quantiles(),
        "The quantiles of {summary_latencies}. Their errors are for tritonserver: here a value is right to 1 %.",
        default=(0.5, 0.9, 0.95, 0.99, 0.999),
    )

    @classmethod
    def of(cls, values: Mapping[str, Any], name: Naming) -> Self | None:
        stated = {key: value for key, value in values.items() if key not in cls.switches}
        members = dict(cls.members())
        source = name("config")
        for text in values.get("config", ()):
            key, equals, value = text.partition("=")
            if not equals or not value:
                raise ConfigInvalid(f"{source}: expected SETTING=VALUE, got {text!r}")
            if key not in _CONFIGURED:
                raise ConfigInvalid(f"{source} {text}: unknown setting {key!r}, expected {' or '.join(_CONFIGURED)}")
            member = members[key]
            assert isinstance(member, Setting)  # noqa: S101 - all of these are
            stated[key] = member.kind.read(value, f"{source} {text}")
        return cls(**stated)

    @property
    def native(self) -> dict[str, Any]:
        """The options as the native core takes them"""
        return {
            "cpu": self.cpu,
            "gpus": {"visible": visible_gpus()} if self.gpu else None,
            "interval_ms": self.interval_ms,
            "counter_latencies": self.counter_latencies,
            "histogram_latencies": self.histogram_latencies,
            "summary_quantiles": self.summary_quantiles if self.summary_latencies else None,
        }


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
    tls: bool = setting(
        "metrics-ssl", Switch(), "Speak TLS on the metrics port, too, where HTTP does; else it is plain.", default=False
    )
