"""The load of the server beside an answer: ``endpoint-load-metrics-format``, as balancers with ORCA ask for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.contract import requests
from tests.contract.requests import ADD_SUB_INPUTS, Infer

if TYPE_CHECKING:
    from tests.raw_http import Connection

_, BODY = requests.body(Infer("add_sub", ADD_SUB_INPUTS))
PATH = requests.path("add_sub")
FORMAT = "endpoint-load-metrics-format"
REPORT = "endpoint-load-metrics"
NAMES = ["kushi_queue_requests", "kushi_running_requests"]


def test_a_report_in_json_names_the_gauges_of_the_metrics(either: Connection) -> None:
    report = either.ask("POST", PATH, [(FORMAT, "json")], BODY).header(REPORT) or ""
    kind, _, text = report.partition(" ")
    assert kind == "JSON"
    named = json.loads(text)["named_metrics"]
    assert list(named) == NAMES
    assert all(isinstance(value, int) and value >= 0 for value in named.values())


def test_a_report_in_text_names_the_same(either: Connection) -> None:
    report = either.ask("POST", PATH, [(FORMAT, "text")], BODY).header(REPORT) or ""
    kind, _, text = report.partition(" ")
    assert kind == "TEXT"
    entries = dict(entry.split("=") for entry in text.split(", "))
    assert list(entries) == [f"named_metrics.{name}" for name in NAMES]
    assert all(value.isdigit() for value in entries.values())


def test_a_refused_request_has_a_report_too(connection: Connection) -> None:
    response = connection.ask("POST", PATH, [(FORMAT, "text")], b"{}")
    assert response.status == 500
    assert (response.header(REPORT) or "").startswith("TEXT named_metrics.")


@pytest.mark.parametrize("verb", ["generate", "generate_stream"])
def test_plain_json_has_a_report_too(connection: Connection, verb: str) -> None:
    path = f"/v2/models/identity_int32/{verb}"
    response = connection.ask("POST", path, [(FORMAT, "text")], b'{"INPUT0": [1, 2]}')
    assert response.status == 200, response.body
    assert (response.header(REPORT) or "").startswith("TEXT named_metrics.")


@pytest.mark.parametrize("wanted", [None, "", "TEXT", "yaml", "text,json"])
def test_no_report_comes_unasked_or_in_another_format(connection: Connection, wanted: str | None) -> None:
    headers = [] if wanted is None else [(FORMAT, wanted)]
    response = connection.ask("POST", PATH, headers, BODY)
    assert (response.status, response.header(REPORT)) == (200, None)
