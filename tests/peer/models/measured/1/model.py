"""Measures, in the WAY it is told; each way has a family of its own, called after it"""

import re

import numpy as np
import triton_python_backend_utils as pb_utils

# Triton has MetricFamily once this file has been read
COUNTER = "COUNTER"
GAUGE = "GAUGE"
HISTOGRAM = "HISTOGRAM"
ONE = {"a": "1"}
BUCKETS = [0.5, 1.0, 2.5]


class TritonPythonModel:
    def initialize(self, args):
        # what is dropped leaves the page
        self.kept = []

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        way = pb_utils.get_input_tensor_by_name(request, "WAY").as_numpy()[0].decode()
        try:
            told = WAYS[way](Family(self.kept, "measured_" + re.sub("[^a-zA-Z]", "_", way)))
        except pb_utils.TritonModelException as error:
            told = f"{type(error).__name__}: {error}"
        except Exception as error:
            # its words are those of C++
            told = type(error).__name__
        return pb_utils.InferenceResponse([pb_utils.Tensor("TOLD", np.array([str(told)], np.object_))])


class Family:
    """Makes families of one name, and metrics of them"""

    def __init__(self, kept, name):
        self.kept = kept
        self.name = name

    def of(self, kind, description="What a way has measured", name=None):
        name = self.name if name is None else name
        family = pb_utils.MetricFamily(name=name, description=description, kind=kind_named(kind))
        self.kept.append(family)
        return family

    def metric(self, kind, **arguments):
        metric = self.of(kind).Metric(**arguments)
        self.kept.append(metric)
        return metric

    def counter(self, labels=ONE):
        return self.metric(COUNTER, labels=labels)

    def gauge(self, labels=ONE):
        return self.metric(GAUGE, labels=labels)

    def histogram(self, buckets=BUCKETS, labels=ONE):
        return self.metric(HISTOGRAM, labels=labels, buckets=buckets)


def kind_named(kind):
    return getattr(pb_utils.MetricFamily, kind) if kind in (COUNTER, GAUGE, HISTOGRAM) else kind


def incremented(metric, *values):
    for value in values:
        metric.increment(value)
    return metric.value()


def is_set(metric, *values):
    for value in values:
        metric.set(value)
    return metric.value()


def observed(metric, *values):
    for value in values:
        metric.observe(value)


def twice(family):
    """Two families of one name, each with the same metric"""
    first, second = family.counter(), family.counter()
    first.increment(2)
    second.increment(3)
    return first.value(), second.value()


def one_of_two(family):
    """One of two that are the same metric goes"""
    kept = family.of(COUNTER)
    first, second = kept.Metric(labels=ONE), kept.Metric(labels=ONE)
    first.increment(2)
    second.increment(3)
    family.kept.append(second)
    return second.value()


def series(family):
    """Several of one family"""
    made = family.of(GAUGE)
    metrics = [made.Metric(labels=labels) for labels in ({"a": "2"}, {"a": "1"}, {"a": "1", "b": ""}, {})]
    family.kept += metrics
    for number, metric in enumerate(metrics):
        metric.set(number)


def not_kept(family):
    """The model keeps the family alone"""
    made = family.of(COUNTER)
    for _ in range(3):
        made.Metric(labels=ONE).increment(1)


def dropped(family):
    """Neither the metric nor its family"""
    metric = pb_utils.MetricFamily(name=family.name, description="d", kind=kind_named(COUNTER)).Metric(labels=ONE)
    del metric


def family_first(family):
    """The family goes before its metric"""
    metric = pb_utils.MetricFamily(name=family.name, description="d", kind=kind_named(COUNTER)).Metric(labels=ONE)
    metric.increment(1)
    return metric.value()


def other_kind(family):
    family.counter().increment(1)
    family.gauge().set(5)


def other_description(family):
    family.counter().increment(1)
    family.of(COUNTER, "Something else")


def other_buckets(family):
    observed(family.histogram(), 0.7)
    observed(family.histogram([1.0]), 0.7)


WAYS = {
    "count": lambda family: incremented(family.counter(), 2, 0.5),
    "count nothing": lambda family: family.counter().value(),
    "count zero": lambda family: incremented(family.counter(), 0),
    "count down": lambda family: incremented(family.counter(), -1),
    "count to infinity": lambda family: incremented(family.counter(), float("inf")),
    "count none": lambda family: incremented(family.counter(), float("nan")),
    "count in the large": lambda family: incremented(family.counter(), 2.0**53, 1e300),
    "count in parts": lambda family: incremented(family.counter(), *[0.1] * 3),
    "count NumPy": lambda family: incremented(family.counter(), np.float32(0.5), np.int64(3), np.float64(1)),
    "count true": lambda family: incremented(family.counter(), True),
    "count text": lambda family: incremented(family.counter(), "1"),
    "count no number": lambda family: incremented(family.counter(), None),
    "count without a number": lambda family: family.counter().increment(),
    "set a counter": lambda family: is_set(family.counter(), 1),
    "observe a counter": lambda family: observed(family.counter(), 1),
    "gauge": lambda family: is_set(family.gauge(), 1, 7.25),
    "gauge down": lambda family: incremented(family.gauge(), 1, -3),
    "gauge infinity": lambda family: is_set(family.gauge(), float("-inf")),
    "gauge none": lambda family: is_set(family.gauge(), float("nan")),
    "gauge in the small": lambda family: is_set(family.gauge(), 1e-7),
    "gauge text": lambda family: is_set(family.gauge(), "1"),
    "observe a gauge": lambda family: observed(family.gauge(), 1),
    "observe": lambda family: observed(family.histogram(), 0.2, 0.5, 0.7, 3),
    "observe nothing": lambda family: observed(family.histogram()),
    "observe infinity": lambda family: observed(family.histogram(), float("inf")),
    "observe below": lambda family: observed(family.histogram(), -1),
    "observe text": lambda family: observed(family.histogram(), "1"),
    "increment a histogram": lambda family: family.histogram().increment(1),
    "set a histogram": lambda family: family.histogram().set(1),
    "value of a histogram": lambda family: family.histogram().value(),
    "no buckets": lambda family: family.metric(HISTOGRAM, labels=ONE),
    "empty buckets": lambda family: observed(family.histogram([]), 1),
    "whole buckets": lambda family: observed(family.histogram([1, 2]), 1),
    "tuple of buckets": lambda family: observed(family.histogram((1.0, 2.0)), 1),
    "array of buckets": lambda family: observed(family.histogram(np.array([1.0, 2.0])), 1),
    "text of buckets": lambda family: observed(family.histogram("12"), 1),
    "buckets of text": lambda family: observed(family.histogram(["1"]), 1),
    "number of buckets": lambda family: observed(family.histogram(3), 1),
    "equal buckets": lambda family: observed(family.histogram([1.0, 1.0]), 1),
    "falling buckets": lambda family: observed(family.histogram([2.0, 1.0]), 1),
    "buckets to infinity": lambda family: observed(family.histogram([1.0, float("inf")]), 1, 2),
    "buckets of a counter": lambda family: family.metric(COUNTER, buckets=BUCKETS),
    "buckets of a gauge": lambda family: family.metric(GAUGE, buckets=BUCKETS),
    "tuple of a counter": lambda family: family.metric(COUNTER, buckets=(1.0,)),
    "no buckets of a counter": lambda family: family.metric(COUNTER, buckets=[]),
    "other buckets": other_buckets,
    "without labels": lambda family: incremented(family.metric(COUNTER), 1),
    "labels of none": lambda family: incremented(family.counter(None), 1),
    "empty labels": lambda family: incremented(family.counter({}), 1),
    "labels in order": lambda family: incremented(family.counter({"b": "2", "a": "1"}), 1),
    "labels in a list": lambda family: family.counter(["a"]),
    "labels in text": lambda family: family.counter("a"),
    "label of a number": lambda family: family.counter({"a": 1}),
    "label of true": lambda family: family.counter({"a": True}),
    "label of nothing": lambda family: family.counter({"a": None}),
    "label of bytes": lambda family: family.counter({"a": b"1"}),
    "number for a label": lambda family: incremented(family.counter({1: "a"}), 1),
    "empty label": lambda family: family.counter({"": "1"}),
    "label with a space": lambda family: family.counter({"a b": "1"}),
    "label with a colon": lambda family: family.counter({"a:b": "1"}),
    "label with a digit first": lambda family: family.counter({"1a": "1"}),
    "label of the system": lambda family: family.counter({"__a": "1"}),
    "label of a bucket": lambda family: observed(family.histogram(labels={"le": "1"}), 1),
    "label le of a counter": lambda family: incremented(family.counter({"le": "1"}), 1),
    "odd values of labels": lambda family: incremented(family.counter({"a": 'é "\\\n', "b": ""}), 1),
    "family of no kind": lambda family: family.of(None),
    "family of another kind": lambda family: family.of(7),
    "family of a text": lambda family: family.of("counter"),
    "family of a number": lambda family: family.of(COUNTER, name=7),
    "family without a name": lambda family: family.of(COUNTER, name=""),
    "family with a space": lambda family: family.of(COUNTER, name="measured by a space"),
    "family with a minus": lambda family: family.of(COUNTER, name="measured-by-a-minus"),
    "family with a digit first": lambda family: family.of(COUNTER, name="7_measured"),
    "family of the system": lambda family: family.of(COUNTER, name="__measured").Metric() and None,
    "family with a colon": lambda family: family.of(COUNTER, name="measured_family_with_a_colon:").Metric() and None,
    "family described by nothing": lambda family: family.of(COUNTER, None),
    "empty description": lambda family: family.of(COUNTER, "").Metric() and None,
    "odd description": lambda family: family.of(COUNTER, 'é "\\\nof two lines').Metric() and None,
    "twice": twice,
    "one of two": one_of_two,
    "series": series,
    "not kept": not_kept,
    "dropped": dropped,
    "family first": family_first,
    "other kind": other_kind,
    "other description": other_description,
    "name of the server": lambda family: family.of(COUNTER, name="nv_inference_count") and None,
    "name of a kind": lambda family: str(kind_named(COUNTER)),
    "constants": lambda family: [str(kind_named(kind)) for kind in (GAUGE, HISTOGRAM)],
    "another argument": lambda family: family.metric(COUNTER, label=ONE),
}
