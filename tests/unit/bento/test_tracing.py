"""A request has the ids that BentoML's own tracing would give it, and is recorded where somebody collects records."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from runners.bento.web.tracing import Tracing, carried
from tests.bentoml_internals import TRACER_PROVIDER
from tests.unit.bento.asgi import Call, answering, ask

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from runners.bento.web.asgi import Receive, Scope, Send

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"


@pytest.fixture
def provider() -> TracerProvider:
    """Another one each time, decided as BentoML decides"""
    sampler = TRACER_PROVIDER.get().sampler
    return TracerProvider(sampler=sampler, shutdown_on_exit=False)


def traced(provider: TracerProvider, *, has_exclusions: bool = False, **options: Any) -> Any:  # noqa: ANN401 - an application that says what it saw
    """The span that the application sees, for headers"""

    def spans(*headers: tuple[bytes, bytes]) -> Span:
        seen: list[Span] = []

        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            seen.append(trace.get_current_span())
            await answering()(scope, receive, send)

        tracing = Tracing(application, tracer_provider=provider, has_exclusions=has_exclusions, **options)
        asyncio.run(ask(tracing, Call("/a", headers=headers)))
        return seen[0]

    return spans


def test_each_request_has_ids_of_its_own_and_no_record(provider: TracerProvider) -> None:
    spans = traced(provider)
    first, second = spans(), spans()
    assert not first.is_recording()
    assert first.get_span_context().is_valid
    assert first.get_span_context().trace_id != second.get_span_context().trace_id


def test_bentoml_hears_of_the_span_that_the_application_sees(provider: TracerProvider) -> None:
    heard: list[int] = []

    def hook(span: Any, _scope: Scope) -> None:  # noqa: ANN401 - as BentoML's looks at it, for a span of any kind
        heard.append(span.context.span_id)

    spans = traced(provider, server_request_hook=hook)
    seen = [spans().get_span_context().span_id]
    provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    seen.append(spans().get_span_context().span_id)
    assert heard == seen


@pytest.mark.parametrize("flags", ["00", "01"])
def test_the_trace_of_the_caller_goes_on(provider: TracerProvider, flags: str) -> None:
    headers = [(b"traceparent", f"00-{TRACE}-{CALLER}-{flags}".encode()), (b"tracestate", b"vendor=1")]
    found = traced(provider)(*headers).get_span_context()
    assert f"{found.trace_id:032x}" == TRACE
    assert f"{found.span_id:016x}" != CALLER
    assert found.trace_flags == int(flags)
    assert found.trace_state.to_header() == "vendor=1"


def test_the_request_is_recorded_once_somebody_collects(provider: TracerProvider) -> None:
    spans, exporter = traced(provider), InMemorySpanExporter()
    assert not spans().is_recording()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans((b"traceparent", f"00-{TRACE}-{CALLER}-01".encode()))
    (recorded,) = exporter.get_finished_spans()
    assert recorded.attributes is not None
    assert recorded.attributes["http.method"] == "POST"


def test_excluded_paths_stay_excluded(provider: TracerProvider) -> None:
    span = traced(provider, has_exclusions=True, excluded_urls="/a")()
    assert span is trace.INVALID_SPAN


def carrying(provider: TracerProvider, *headers: tuple[bytes, bytes]) -> tuple[tuple[str, str] | None, str]:
    """What a call from the application carries, and the span id that the application sees"""
    seen: list[tuple[tuple[str, str] | None, str]] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((carried(), f"{trace.get_current_span().get_span_context().span_id:016x}"))
        await answering()(scope, receive, send)

    asyncio.run(ask(Tracing(application, tracer_provider=provider, has_exclusions=False), Call("/a", headers=headers)))
    return seen[0]


@pytest.mark.parametrize("flags", ["00", "01"])
def test_a_call_is_part_of_the_trace_of_the_caller_where_nobody_collects(provider: TracerProvider, flags: str) -> None:
    parent = f"00-{TRACE}-{CALLER}-{flags}"
    found, _ = carrying(provider, (b"traceparent", parent.encode()), (b"tracestate", b"vendor=1"))
    assert found == (parent, "vendor=1")


def test_a_call_is_below_the_span_of_the_service_where_somebody_collects(provider: TracerProvider) -> None:
    provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    found, span = carrying(provider, (b"traceparent", f"00-{TRACE}-{CALLER}-01".encode()))
    assert found == (f"00-{TRACE}-{span}-01", "")


def test_a_call_without_a_caller_has_the_ids_of_the_log(provider: TracerProvider) -> None:
    found, span = carrying(provider)
    assert found is not None
    assert found[0].split("-")[2] == span


def test_outside_of_a_request_a_call_is_part_of_no_trace() -> None:
    assert carried() is None
