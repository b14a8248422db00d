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


REFUSED = "Error when creating Metric: Failed to process the request for model 'm_0', message: "


@pytest.mark.parametrize(
    ("kind", "arguments", "text"),
    [
        (MetricKind.HISTOGRAM, {}, "Failed to create metric. Missing required buckets."),
        (MetricKind.HISTOGRAM, {"buckets": [1, 1]}, f"{REFUSED}Bucket Boundaries must be strictly sorted"),
        (MetricKind.HISTOGRAM, {"buckets": [np.nan]}, f"{REFUSED}Bucket Boundaries must be strictly sorted"),
        (MetricKind.HISTOGRAM, {"buckets": (1, 2)}, "Failed to create metric. Buckets must be a list."),
        (MetricKind.COUNTER, {"buckets": (1, 2)}, "Failed to create metric. Buckets must be a list."),
        (MetricKind.COUNTER, {"buckets": [1]}, "Failed to create metric. Unexpected buckets found."),
        (MetricKind.COUNTER, {"labels": ["a"]}, "Failed to create metric. Labels must be a dictionary."),
        (MetricKind.COUNTER, {"labels": {"a": 1}}, f"{REFUSED}attempt to access JSON non-string as string"),
        (MetricKind.COUNTER, {"labels": {1: "a"}}, f"{REFUSED}Invalid label name"),
        (MetricKind.COUNTER, {"labels": {"__a": "b"}}, f"{REFUSED}Invalid label name"),
        (
            MetricKind.COUNTER,
            {"labels": {"a": "\ud800"}},
            f"{REFUSED}Invalid label value: it is no text that UTF-8 can write",
        ),
    ],
)
def test_what_is_no_metric_is_refused(
    server: AnsweringServer, kind: MetricKind, arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(TritonModelException) as raised:
        family(kind).Metric(**arguments)
    assert str(raised.value) == text


@pytest.mark.parametrize("arguments", [{"labels": {"a": b"b"}}, {"buckets": ["1"]}])
def test_what_has_another_type_is_refused(server: AnsweringServer, arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        family(MetricKind.HISTOGRAM).Metric(**{"buckets": [1.0], **arguments})


@pytest.mark.parametrize("arguments", [(None, "d", MetricKind.GAUGE), ("n", None, MetricKind.GAUGE), ("n", "d", 1)])
def test_what_is_no_family_is_refused(server: AnsweringServer, arguments: tuple[Any, Any, Any]) -> None:
    with pytest.raises(TypeError):
        MetricFamily(*arguments)


@pytest.mark.parametrize("value", [None, "1"])
def test_what_is_no_number_is_refused(server: AnsweringServer, value: Any) -> None:
    with pytest.raises(TypeError):
        family(MetricKind.GAUGE).Metric().set(value)


@pytest.mark.parametrize("name", ["", "a b", "a-b", "7a", "__a"])
def test_what_is_no_name_is_refused(server: AnsweringServer, name: str) -> None:
    with pytest.raises(TritonModelException, match=r"^Error when creating MetricFamily: .*: Invalid metric name$"):
        family(MetricKind.GAUGE, name)


def test_a_name_has_one_kind(server: AnsweringServer) -> None:
    first = family(MetricKind.GAUGE)
    with pytest.raises(TritonModelException, match=r"^Error when creating MetricFamily: .*: 'f' is a gauge$"):
        family(MetricKind.COUNTER)
    assert first.kind is MetricKind.GAUGE


def test_a_metric_that_is_not_kept_stays_with_its_family(server: AnsweringServer) -> None:
    counted = family(MetricKind.COUNTER)
    for _ in range(3):
        counted.Metric({"a": "b"}).increment(1)
    gc.collect()
    assert server.values == {("f", ("a", "b")): 3}
    # the first stays
    assert server.dropped_metrics == [("f", ("a", "b"))] * 2
    del counted
    gc.collect()
    assert sorted(map(str, server.dropped_metrics[2:])) == ["('f', ('a', 'b'))", "f"]


def test_the_server_hears_what_is_held_no_more(server: AnsweringServer) -> None:
    metric = family(MetricKind.GAUGE).Metric()
    # the metric holds its family
    gc.collect()
    assert server.dropped_metrics == []
    del metric
    gc.collect()
    assert sorted(map(str, server.dropped_metrics)) == ["('f',)", "f"]
