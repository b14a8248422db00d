"""The ids of a request, without a record of it that nobody collects"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry import context, metrics, propagate, trace
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware, asgi_getter
from opentelemetry.instrumentation.propagators import get_global_response_propagator
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.trace import SpanContext

    from .asgi import Application, Receive, Scope, Send

__all__ = ["Tracing", "carried"]

_UNRECORDED = context.create_key("unrecorded")
"""In a context: a span that nobody collects, and the ids of its caller"""


def carried() -> tuple[str, str] | None:
    """The trace that a call from here is part of, as the values of traceparent and tracestate"""
    span = trace.get_current_span()
    around = span.get_span_context()
    if not around.is_valid:
        return None
    unrecorded: Any = context.get_value(_UNRECORDED)
    # what is below a span that nobody collects would hang in the air
    if unrecorded is not None and unrecorded[0] is span and unrecorded[1].is_valid:
        around = unrecorded[1]
    parent = f"00-{around.trace_id:032x}-{around.span_id:016x}-{around.trace_flags:02x}"
    return parent, around.trace_state.to_header()


class Tracing:
    """
    In the place of OpenTelemetry's middleware, which does its part where somebody collects spans or measurements, or
    has excluded paths. Where nobody does, what it gathers of a request is a quarter of what a short one costs; here the
    request gets what shows: the trace of its caller or a new one, and a span id, for answers, logs and calls of other
    services.
    """

    def __init__(
        self,
        app: Application,
        *,
        tracer_provider: TracerProvider,
        has_exclusions: bool,
        server_request_hook: Callable[..., None] | None = None,
        **options: Any,  # noqa: ANN401 - passed on
    ) -> None:
        self._app = app
        # A span for each message would be made for nobody: no exporter is configured.
        options |= {"tracer_provider": tracer_provider, "exclude_spans": ["receive", "send"]}
        options |= {"server_request_hook": server_request_hook}
        self._recorded: Any = OpenTelemetryMiddleware(app, **options)
        self._provider = tracer_provider
        self._has_exclusions = has_exclusions
        self._hook = server_request_hook
        unrecorded = TracerProvider(
            sampler=_Unrecorded(tracer_provider.sampler),
            resource=tracer_provider.resource,
            shutdown_on_exit=False,
            id_generator=tracer_provider.id_generator,
        )
        self._tracer = unrecorded.get_tracer(__name__)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"} or self._is_collected():
            return await self._recorded(scope, receive, send)
        around = context.get_current()
        if trace.get_current_span() is trace.INVALID_SPAN and _names(scope) & propagate.get_global_textmap().fields:
            getter: Any = asgi_getter
            around = propagate.extract(scope, around, getter)
        span = self._tracer.start_span(scope["path"], around)
        caller = trace.get_current_span(around).get_span_context()
        inside = context.set_value(_UNRECORDED, (span, caller), trace.set_span_in_context(span, around))
        token = context.attach(inside)
        try:
            # BentoML's, which puts the id into answers and logs
            if self._hook is not None:
                self._hook(_Unseen(span.get_span_context()), scope)
            await self._app(scope, receive, send)
        finally:
            context.detach(token)
        return None

    def _is_collected(self) -> bool:
        """Asked for each request: the service may add a collector at any time"""
        return bool(
            self._has_exclusions
            or self._provider._active_span_processor._span_processors  # noqa: SLF001 - it has no public name
            or isinstance(metrics.get_meter_provider(), MeterProvider)
            or get_global_response_propagator()  # type: ignore[no-untyped-call] # it has no types
        )


class _Unseen(NamedTuple):
    """A span, as the hook looks at it"""

    context: SpanContext


class _Unrecorded(Sampler):
    """Decides as another one, and leaves out what that one would have recorded only"""

    def __init__(self, decides: Sampler) -> None:
        self._decides = decides

    def should_sample(self, *args: Any, **options: Any) -> SamplingResult:  # noqa: ANN401 - passed on
        result = self._decides.should_sample(*args, **options)
        if result.decision is Decision.RECORD_ONLY:
            return SamplingResult(Decision.DROP, trace_state=result.trace_state)
        return result

    def get_description(self) -> str:
        return f"unrecorded {self._decides.get_description()}"


def _names(scope: Scope) -> set[str]:
    return {name.decode("latin-1") for name, _ in scope["headers"]}
