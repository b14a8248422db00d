"""A collector of traces: takes OTLP over HTTP, and keeps the spans. The messages are described here once more."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, Self

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

__all__ = ["Collector", "Span"]

_PACKAGE: Final = "kushi.tests.otlp"
_TYPES: Final = {
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "fixed64": descriptor_pb2.FieldDescriptorProto.TYPE_FIXED64,
}
# message → field → its number and its type; a type that ends with * is repeated
_MESSAGES: Final[Mapping[str, Mapping[str, tuple[int, str]]]] = {
    "Request": {"resource_spans": (1, "ResourceSpans*")},
    "ResourceSpans": {"resource": (1, "Resource"), "scope_spans": (2, "ScopeSpans*")},
    "Resource": {"attributes": (1, "KeyValue*")},
    "ScopeSpans": {"scope": (1, "Scope"), "spans": (2, "Span*")},
    "Scope": {"name": (1, "string")},
    "Span": {
        "trace_id": (1, "bytes"),
        "span_id": (2, "bytes"),
        "trace_state": (3, "string"),
        "parent_span_id": (4, "bytes"),
        "name": (5, "string"),
        "kind": (6, "int32"),
        "start_time_unix_nano": (7, "fixed64"),
        "end_time_unix_nano": (8, "fixed64"),
        "attributes": (9, "KeyValue*"),
        "events": (11, "Event*"),
        "status": (15, "Status"),
    },
    "Event": {"time_unix_nano": (1, "fixed64"), "name": (2, "string")},
    "Status": {"message": (2, "string"), "code": (3, "int32")},
    "KeyValue": {"key": (1, "string"), "value": (2, "AnyValue")},
    "AnyValue": {"string_value": (1, "string"), "int_value": (3, "int64")},
}


def _request() -> Any:  # noqa: ANN401 - a class that protobuf makes
    file = descriptor_pb2.FileDescriptorProto(name="kushi_tests_otlp.proto", package=_PACKAGE, syntax="proto3")
    for name, members in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for member, (number, of) in members.items():
            kind = of.removesuffix("*")
            made = message.field.add(name=member, number=number)
            made.label = made.LABEL_REPEATED if of.endswith("*") else made.LABEL_OPTIONAL
            made.type = _TYPES.get(kind, made.TYPE_MESSAGE)
            if kind not in _TYPES:
                made.type_name = f".{_PACKAGE}.{kind}"
    pool: Any = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Request"))


_REQUEST: Final = _request()


@dataclass(frozen=True)
class Span:
    name: str
    trace: str
    id: str
    parent: str
    kind: int
    state: str
    began: int
    ended: int
    events: list[str]
    attributes: dict[str, str | int]
    error: str
    resource: dict[str, str | int]


@dataclass
class Collector:
    """Answers `status`; what it has not accepted it does not keep"""

    status: int = 200
    spans: list[Span] = field(default_factory=list)
    requests: list[tuple[str, int]] = field(default_factory=list)
    """Of each the path and the number of its spans, accepted or not"""
    headers: list[dict[str, str]] = field(default_factory=list)
    """Of each request, by names in lower case"""

    def __enter__(self) -> Self:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                assert self.headers["content-type"] == "application/x-protobuf"
                collector.headers.append({name.lower(): value for name, value in self.headers.items()})
                collector.take(self.path, body)
                self.send_response(collector.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing"""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def take(self, path: str, body: bytes) -> None:
        found = [
            _span(span, of.resource)
            for of in _REQUEST.FromString(body).resource_spans
            for scope in of.scope_spans
            for span in scope.spans
        ]
        if self.status == 200:
            self.spans += found
        self.requests.append((path, len(found)))

    def wait_for(self, count: int, trace: str | None = None) -> list[Span]:
        """So many spans, of one trace or of any, in the order in which they began"""

        def found() -> list[Span]:
            return [span for span in self.spans if trace in {None, span.trace}]

        eventually(lambda: len(found()) >= count, f"{count} spans")
        return sorted(found(), key=lambda span: span.began)


def _span(span: Any, resource: Any) -> Span:  # noqa: ANN401 - messages
    return Span(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.kind,
        span.trace_state,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        [event.name for event in span.events],
        _attributes(span.attributes),
        span.status.message if span.status.code else "",
        _attributes(resource.attributes),
    )


def _attributes(pairs: Any) -> dict[str, str | int]:  # noqa: ANN401 - messages
    return {one.key: one.value.string_value or one.value.int_value for one in pairs}
