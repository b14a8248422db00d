from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from runners.worker.errors import TritonModelException
from runners.worker.metrics import Metric, MetricFamily, MetricKind

if TYPE_CHECKING:
    from tests.unit.worker.answering import AnsweringServer


def family(kind: MetricKind, name: str = "f") -> MetricFamily:
    return MetricFamily(name=name, description="d", kind=kind)


def test_a_counter_rises(server: AnsweringServer) -> None:
    metric = family(MetricFamily.COUNTER).Metric(labels={"a": "b"})
    assert isinstance(metric, Metric)
    assert metric.value() == 0
    metric.increment(2)
    metric.increment(np.float32(0.5))  # type: ignore[arg-type] # a number as models have it
    assert metric.value() == 2.5
    with pytest.raises(TritonModelException):
        metric.increment(-1)
    with pytest.raises(TritonModelException):
        metric.set(1)
    with pytest.raises(TritonModelException):
        metric.observe(1)
    assert server.values == {("f", ("a", "b")): 2.5}


def test_a_gauge_stands_where_it_is_set(server: AnsweringServer) -> None:
    metric = family(MetricFamily.GAUGE).Metric()
    metric.increment(5)
    metric.increment(-2)
    assert metric.value() == 3
    metric.set(1)
    assert metric.value() == 1
    with pytest.raises(TritonModelException):
        metric.observe(1)


def test_a_histogram_takes_values(server: AnsweringServer) -> None:
    metric = family(MetricFamily.HISTOGRAM).Metric(labels={}, buckets=[0.1, 1, 10])
    metric.observe(0.5)
    assert server.values == {("f",): 0.5}
    assert server.buckets == {("f",): [0.1, 1, 10]}
    for refused in (metric.increment, metric.set):
        with pytest.raises(TritonModelException):
            refused(1)
    with pytest.raises(TritonModelException):
        metric.value()


@pytest.mark.parametrize(
    ("kind", "arguments", "raised"),
    [
        (MetricKind.HISTOGRAM, {}, TritonModelException),
        (MetricKind.HISTOGRAM, {"buckets": [1, 1]}, TritonModelException),
        (MetricKind.HISTOGRAM, {"buckets": 3}, TypeError),
        (MetricKind.COUNTER, {"buckets": [1]}, TritonModelException),
        (MetricKind.COUNTER, {"labels": {"a": 1}}, TypeError),
        (MetricKind.COUNTER, {"labels": ["a"]}, TypeError),
    ],
)
def test_what_is_no_metric_is_refused(
    server: AnsweringServer, kind: MetricKind, arguments: dict[str, Any], raised: type[Exception]
) -> None:
    with pytest.raises(raised):
        family(kind).Metric(**arguments)


@pytest.mark.parametrize("arguments", [(None, "d", MetricKind.GAUGE), ("n", None, MetricKind.GAUGE), ("n", "d", 1)])
def test_what_is_no_family_is_refused(server: AnsweringServer, arguments: tuple[Any, Any, Any]) -> None:
    with pytest.raises(TypeError):
        MetricFamily(*arguments)


@pytest.mark.parametrize("value", [None, "1"])
def test_what_is_no_number_is_refused(server: AnsweringServer, value: Any) -> None:
    with pytest.raises(TypeError):
        family(MetricKind.GAUGE).Metric().set(value)


def test_a_name_has_one_kind(server: AnsweringServer) -> None:
    first = family(MetricKind.GAUGE)
    with pytest.raises(TritonModelException):
        family(MetricKind.COUNTER)
    assert first.kind is MetricKind.GAUGE


def test_the_server_hears_what_is_held_no_more(server: AnsweringServer) -> None:
    metric = family(MetricKind.GAUGE).Metric()
    # the metric holds its family
    gc.collect()
    assert server.dropped_metrics == []
    del metric
    gc.collect()
    assert server.dropped_metrics == [("f",), "f"]
