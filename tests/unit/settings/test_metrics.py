"""The settings of metrics: as tritonserver's flag states them, as flags of their own, and as objects of a program"""

from __future__ import annotations

import pytest

from runners import EngineOptions, MetricsOptions
from runners.errors import ConfigInvalid
from runners.settings import read_settings


def read(*config: str, **flags: object) -> MetricsOptions:
    return read_settings({"metrics_config": [*config], **flags}).engine.metrics


def test_every_setting_may_be_stated_as_tritonserver_takes_it() -> None:
    found = read(
        *("counter_latencies=false", "histogram_latencies=true", "summary_latencies=TRUE"),
        "summary_quantiles=0.5:0.05,1",
    )
    assert found == MetricsOptions(
        counter_latencies=False, histogram_latencies=True, summary_latencies=True, summary_quantiles=(0.5, 1.0)
    )
    assert found.native["summary_quantiles"] == (0.5, 1.0)


def test_the_configuration_wins_over_flags() -> None:
    found = read("summary_latencies=false", metrics_summary_latencies="true", metrics_histogram_latencies="true")
    assert (found.summary_latencies, found.histogram_latencies) == (False, True)
    assert found.native["summary_quantiles"] is None


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ("summary_latencies", "expected SETTING=VALUE, got 'summary_latencies'"),
        ("summary_latencies=", "expected SETTING=VALUE"),
        ("summaries=true", "unknown setting 'summaries', expected counter_latencies or "),
        ("summary_latencies=maybe", "expected true, false, on, off, 1 or 0, got 'maybe'"),
        ("summary_quantiles=0.5:0.0.1", "expected quantiles from 0 to 1 like 0.5:0.05,0.99:0.001"),
        ("summary_quantiles=1.5:0.1", "expected quantiles"),
        ("summary_quantiles=nan", "expected quantiles"),
        ("summary_quantiles=0.5:2", "expected quantiles"),
        ("summary_quantiles=0.1:0.1:0.1", "expected quantiles"),
        ("summary_quantiles=" + ",".join(["0.5"] * 65), "expected quantiles"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(config: str, text: str) -> None:
    with pytest.raises(ConfigInvalid, match="--metrics-config") as raised:
        read(config)
    assert text in str(raised.value)


@pytest.mark.parametrize("quantiles", [(), (2,), (True,), [0.5], "0.5", (float("nan"),)])
def test_an_object_has_quantiles_from_0_to_1(quantiles: object) -> None:
    metrics = MetricsOptions(summary_quantiles=quantiles)  # type: ignore[arg-type] # that is the point
    with pytest.raises(ConfigInvalid, match="a tuple of 1 to 64 numbers from 0 to 1"):
        EngineOptions(metrics=metrics)
