"""What both servers make of the metrics of a model: what it is told, and what is on the page."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.peer.conftest import MODELS
from tests.peer.pair import Pair, Peer, infer
from tests.raw_http import fetch

if TYPE_CHECKING:
    from pathlib import Path

    from tests.peer.pair import Request
    from tests.raw_http import Address, Response

pytestmark = pytest.mark.timeout(400)

MODEL = "measured"
CREATING = (
    "TritonModelException: Error when creating Metric: Failed to process the request for model 'measured_0', message: "
)

ALIKE = [
    "another argument", "array of buckets", "buckets of a counter", "buckets of a gauge", "buckets to infinity",
    "constants", "count", "count NumPy", "count in parts", "count in the large", "count no number", "count nothing",
    "count text", "count to infinity", "count true", "count without a number", "count zero", "dropped",
    "empty buckets", "empty labels", "family described by nothing", "family of a number", "family of a text",
    "family of another kind", "family of no kind", "family with a colon", "gauge", "gauge down",
    "gauge in the small", "gauge infinity", "gauge none", "gauge text", "label le of a counter", "label of bytes",
    "labels in a list", "labels in order", "labels in text", "labels of none", "name of a kind", "no buckets",
    "no buckets of a counter", "not kept", "number of buckets", "observe", "observe below", "observe infinity",
    "observe nothing", "observe text", "odd values of labels", "one of two", "series", "text of buckets",
    "tuple of a counter", "tuple of buckets", "twice", "whole buckets", "without labels",
]  # fmt: skip
SUPPORTS = "TRITONSERVER_METRIC_KIND_{} does not support {}"
NO_LABEL = f"{CREATING}Invalid label name"
NO_TEXT = f"{CREATING}attempt to access JSON non-string as string"
NO_FAMILY = f"{CREATING.replace('Metric:', 'MetricFamily:')}Invalid metric name"
NO_BUCKETS = f"{CREATING}Bucket Boundaries must be strictly sorted"


def failed(verb: str, reason: str) -> str:
    return CREATING.replace("Error when creating Metric:", f"Failed to {verb} metric value:") + reason


REFUSED = {
    "count down": failed(
        "increment",
        "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative values.",
    ),
    "increment a histogram": failed("increment", SUPPORTS.format("HISTOGRAM", "Increment")),
    "observe a counter": failed("observe", SUPPORTS.format("COUNTER", "Observe")),
    "observe a gauge": failed("observe", SUPPORTS.format("GAUGE", "Observe")),
    "set a counter": failed("set", SUPPORTS.format("COUNTER", "Set")),
    "set a histogram": failed("set", SUPPORTS.format("HISTOGRAM", "Set")),
    "value of a histogram": failed("get", SUPPORTS.format("HISTOGRAM", "Value")),
    "empty label": NO_LABEL,
    "label of the system": NO_LABEL,
    "label with a colon": NO_LABEL,
    "label with a digit first": NO_LABEL,
    "label with a space": NO_LABEL,
    "number for a label": NO_LABEL,
    "label of a number": NO_TEXT,
    "label of nothing": NO_TEXT,
    "label of true": NO_TEXT,
    "family of the system": NO_FAMILY,
    "family with a digit first": NO_FAMILY,
    "family with a minus": NO_FAMILY,
    "family with a space": NO_FAMILY,
    "family without a name": NO_FAMILY,
    "equal buckets": NO_BUCKETS,
    "falling buckets": NO_BUCKETS,
}
ENDED = "boost::interprocess::lock_exception"
"""What Triton 2.51 says when it ends, which it may when its server has refused something to a model"""
# (Triton, Kushi): what is told
OTHERWISE = {
    # a counter that is no number never is one again
    "count none": ("nan", "monotonically by non-negative values."),
    "buckets of text": ("RuntimeError", "TypeError"),
    # a page with a label twice cannot be read
    "label of a bucket": ("None", f"{CREATING}'le' is no label of a metric of 'measured_label_of_a_bucket'"),
    # the buckets would be those of the first
    "other buckets": ("None", f"{CREATING}a metric of 'measured_other_buckets' with these labels has the buckets"),
    # it is told that the family has gone
    "family first": ("Invalid metric operation as the corresponding 'MetricFamily' has been deleted.", "1.0"),
    "name of the server": ("None", "metric family 'nv_inference_count' has the name of a metric of the server"),
}
# what a model is told is alike, and the page is not
OTHER_PAGES = {
    # it leaves the line out
    "empty description": ("# HELP measured_empty_description", ""),
    # it does not escape the line break, and the page is none
    "odd description": ("# HELP measured_odd_description", r'é "\\\nof two lines'),
    # a model may describe its own family anew
    "other description": ("# HELP measured_other_description", "Something else"),
}


def page(address: Address, way: str) -> dict[str, str | float]:
    """What a page has about the metrics of a way, by the name and the labels of each line"""
    name = re.escape(f"{MODEL}_{re.sub('[^a-zA-Z]', '_', way)}")
    own = re.compile(rf"(# (?:HELP|TYPE) )?{name}:?(_bucket|_sum|_count)?(?=[ {{])")
    said: dict[str, str | float] = {}
    for line in fetch(address, "GET", "/metrics").body.decode().splitlines():
        if own.match(line) is None:
            continue
        if line.startswith("#"):
            mark, kind, series, text = line.split(" ", 3)
            said[f"{mark} {kind} {series}"] = text
        else:
            series, value = line.rsplit(" ", 1)
            said[series] = float(value)
    return said


def measure(way: str) -> Request:
    return infer(MODEL, {"WAY": np.array([way], object)})


def said(answer: Response) -> str:
    text: str = answer.json()["outputs"][0]["data"][0]
    return text


def told(pair: Pair, way: str) -> tuple[str, str]:
    """What the model is told by Triton and by Kushi"""
    answers = pair.ask(measure(way))
    return said(answers.triton), said(answers.kushi)


def pages(pair: Pair, way: str) -> tuple[dict[str, str | float], dict[str, str | float]]:
    return page(pair.peer.metrics, way), page(pair.kushi_metrics, way)


def told_by_a_new_one(home: Path, way: str) -> str:
    """By a Triton that has refused nothing yet; the test is skipped where it ends all the same"""
    shutil.copytree(MODELS / MODEL, home / "models" / MODEL)
    with Peer(home, home / "models") as peer:
        peer.wait()
        try:
            return said(peer.ask(measure(way)))
        except ConnectionError:
            peer.log.wait_for(re.compile(ENDED), 30)
            pytest.skip(f"Triton has ended rather than answered: {ENDED}")


@pytest.mark.parametrize("way", ALIKE)
def test_metrics_are_those_of_triton(pair: Pair, way: str) -> None:
    triton, kushi = told(pair, way)
    assert kushi == triton
    there, here = pages(pair, way)
    assert {name: value for name, value in here.items() if isinstance(value, str)} == {
        name: value for name, value in there.items() if isinstance(value, str)
    }
    # it writes fewer digits
    assert {name: value for name, value in here.items() if isinstance(value, float)} == pytest.approx(
        {name: value for name, value in there.items() if isinstance(value, float)}, rel=1e-12, nan_ok=True
    )


@pytest.mark.parametrize(("way", "text"), REFUSED.items(), ids=REFUSED)
def test_what_triton_refuses_is_refused_with_its_words(pair: Pair, tmp_path: Path, way: str, text: str) -> None:
    kushi = fetch(pair.kushi, "POST", f"/v2/models/{MODEL}/infer", (), measure(way).body)
    assert said(kushi) == text
    assert told_by_a_new_one(tmp_path, way) == text


@pytest.mark.parametrize(("way", "expected"), OTHERWISE.items(), ids=OTHERWISE)
def test_metrics_that_are_otherwise_on_purpose(pair: Pair, way: str, expected: tuple[str, str]) -> None:
    for said, part in zip(told(pair, way), expected, strict=True):
        assert part in said


@pytest.mark.parametrize(("way", "expected"), OTHER_PAGES.items(), ids=OTHER_PAGES)
def test_pages_that_are_otherwise_on_purpose(pair: Pair, way: str, expected: tuple[str, str | float]) -> None:
    triton, kushi = told(pair, way)
    assert kushi == triton
    there, here = pages(pair, way)
    assert there != here
    name, value = expected
    assert next(text for line, text in here.items() if line.startswith(name)) == value


def test_a_family_of_two_kinds_is_refused(pair: Pair, tmp_path: Path) -> None:
    """Ours says which"""
    begin = CREATING.replace("Metric:", "MetricFamily:")
    kushi = fetch(pair.kushi, "POST", f"/v2/models/{MODEL}/infer", (), measure("other kind").body)
    assert said(kushi) == f"{begin}metric family 'measured_other_kind' is a counter and cannot be a gauge as well"
    assert told_by_a_new_one(tmp_path, "other kind") == f"{begin}Family name already exists with different type"
