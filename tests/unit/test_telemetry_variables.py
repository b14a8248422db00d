"""The variables of OpenTelemetry: what they say, and what wins over them"""

import logging
from typing import Any

import pytest

from runners import TraceOptions
from runners.telemetry_variables import telemetry


def collector(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], **options: Any) -> dict[str, Any]:  # noqa: ANN401 - of any type
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found: dict[str, Any] = TraceOptions(mode="opentelemetry", level=("TIMESTAMPS",), **options).native["collector"]
    return found


def test_without_variables_there_are_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    assert collector(monkeypatch, {}) == {
        "url": "http://localhost:4318/v1/traces",
        "headers": [],
        "timeout_ms": 10_000,
        "resource": [("service.name", "triton-inference-server")],
        "max_queue_size": 2048,
        "schedule_delay_ms": 5000,
        "max_export_batch_size": 512,
    }


def test_all_of_them_count(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector:4318/",
        "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b, tenant=x=y",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "250",
        "OTEL_RESOURCE_ATTRIBUTES": "service.name=other,k8s.pod.name=pod%2C1",
        "OTEL_SERVICE_NAME": "readers",
        "OTEL_BSP_MAX_QUEUE_SIZE": "100",
        "OTEL_BSP_SCHEDULE_DELAY": "7",
    }
    assert collector(monkeypatch, variables) == {
        "url": "https://collector:4318/v1/traces",
        "headers": [("api-key", "a b"), ("tenant", "x=y")],
        "timeout_ms": 250,
        "resource": [("service.name", "readers"), ("k8s.pod.name", "pod,1")],
        "max_queue_size": 100,
        "schedule_delay_ms": 7,
        # no more than may wait
        "max_export_batch_size": 100,
    }


def test_those_of_traces_win_over_those_of_all_signals() -> None:
    said = telemetry(
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://all",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://traces/as/it/is",
            "OTEL_EXPORTER_OTLP_HEADERS": "a=1",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "b=2",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
            "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "2",
        }
    )
    assert (said.url, said.headers, said.timeout_ms) == ("http://traces/as/it/is", {"b": "2"}, 2)


def test_what_is_stated_wins_over_them(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://other/v1/traces",
        "OTEL_SERVICE_NAME": "other",
        "OTEL_RESOURCE_ATTRIBUTES": "zone=a",
        "OTEL_BSP_MAX_QUEUE_SIZE": "9",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "9",
    }
    found = collector(
        monkeypatch,
        variables,
        url="http://here/",
        resource=("service.name=here",),
        max_queue_size=1000,
        max_export_batch_size=20,
    )
    assert (found["url"], found["max_queue_size"], found["max_export_batch_size"]) == ("http://here/", 1000, 20)
    assert found["resource"] == [("service.name", "here"), ("zone", "a")]


@pytest.mark.parametrize(
    "variables", [{"OTEL_SDK_DISABLED": "TRUE"}, {"OTEL_TRACES_EXPORTER": "none"}], ids=["disabled", "none"]
)
def test_they_switch_spans_off(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    level = ("TIMESTAMPS", "TENSORS")
    spans = TraceOptions(mode="opentelemetry", level=level).native
    assert (spans["timestamps"], spans["tensors"]) == (False, False)
    # a file of Triton's form is no matter of theirs
    assert TraceOptions(level=level, file="/t").native["timestamps"] is True


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_BSP_MAX_QUEUE_SIZE", "many"),
        ("OTEL_BSP_SCHEDULE_DELAY", "0"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "-1"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_RESOURCE_ATTRIBUTES", "a"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "=secret"),
    ],
)
def test_one_that_cannot_be_read_is_named_and_does_not_count(
    name: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert telemetry({name: value}) == telemetry({})
    (record,) = caplog.records
    assert name in record.getMessage()
    assert "secret" not in caplog.text
