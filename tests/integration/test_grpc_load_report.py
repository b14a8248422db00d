"""The load of the server in the trailers of an answer over gRPC, as balancers with ORCA ask for it"""

from __future__ import annotations

import json
from base64 import b64decode
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.integration.grpc_doors import SERVICE, add_sub_request, channel, port_of
from tests.raw_http2 import Http2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.serving import Server

ASKED = "endpoint-load-metrics-format"
REPORT = "endpoint-load-metrics"
NAMES = {"kushi_queue_requests", "kushi_running_requests"}


@pytest.fixture
def stub(standard_server: Server) -> Iterator[service_pb2_grpc.GRPCInferenceServiceStub]:
    with channel(port_of(standard_server)) as opened:
        yield service_pb2_grpc.GRPCInferenceServiceStub(opened)


def trailers(call: grpc.Call) -> dict[str, str | bytes]:
    return dict(call.trailing_metadata())


def read(report: bytes) -> dict[str, float]:
    """A message OrcaLoadReport, whose named metrics are described here once more"""
    file = descriptor_pb2.FileDescriptorProto(name="orca.proto", package="orca", syntax="proto3")
    message = file.message_type.add(name="Report")
    entry = message.nested_type.add(name="NamedMetricsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=1, label=1)
    message.field.add(name="named_metrics", number=8, type=11, label=3, type_name=".orca.Report.NamedMetricsEntry")
    pool: Any = descriptor_pool.DescriptorPool()
    pool.Add(file)
    kind: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("orca.Report"))
    return dict(kind.FromString(report).named_metrics)


def test_a_report_in_binary_is_the_message_that_balancers_read(standard_server: Server) -> None:
    # grpcio keeps it to itself
    with Http2(("127.0.0.1", port_of(standard_server))) as client:
        client.ask(1, f"{SERVICE}/ModelInfer", add_sub_request().SerializeToString(), [(ASKED, "bin")])
        ended = client.ending(1)
    assert isinstance(ended, dict)
    report = ended[f"{REPORT}-bin"]
    named = read(b64decode(report + "=" * (-len(report) % 4)))
    assert (ended["grpc-status"], {*named}) == ("0", NAMES)
    assert all(value >= 0 for value in named.values())


@pytest.mark.parametrize("asked", ["text", "json"])
def test_an_answer_has_the_report_that_is_asked_for(
    stub: service_pb2_grpc.GRPCInferenceServiceStub, asked: str
) -> None:
    _, call = stub.ModelInfer.with_call(add_sub_request(), metadata=[(ASKED, asked)])
    found = trailers(call)
    kind, _, text = str(found[REPORT]).partition(" ")
    if asked == "json":
        assert (kind, {*json.loads(text)["named_metrics"]}) == ("JSON", NAMES)
    else:
        assert (kind, {one.partition("=")[0] for one in text.split(", ")}) == (
            "TEXT",
            {f"named_metrics.{name}" for name in NAMES},
        )


def test_streams_and_refused_calls_have_it_too(stub: service_pb2_grpc.GRPCInferenceServiceStub) -> None:
    stream = stub.ModelStreamInfer(iter([add_sub_request()]), metadata=[(ASKED, "text")])
    assert len(list(stream)) == 1
    assert str(trailers(stream)[REPORT]).startswith("TEXT ")
    with pytest.raises(grpc.RpcError) as refused:
        stub.ModelInfer(service_pb2.ModelInferRequest(model_name="nobody"), metadata=[(ASKED, "text")])
    assert str(trailers(refused.value)[REPORT]).startswith("TEXT ")


@pytest.mark.parametrize("metadata", [[], [(ASKED, "yaml")]])
def test_nobody_else_gets_one(stub: service_pb2_grpc.GRPCInferenceServiceStub, metadata: list[tuple[str, str]]) -> None:
    _, call = stub.ModelInfer.with_call(add_sub_request(), metadata=metadata)
    assert not {key for key in trailers(call) if key.startswith(REPORT)}
    _, call = stub.ServerLive.with_call(service_pb2.ServerLiveRequest(), metadata=[(ASKED, "text")])
    assert REPORT not in trailers(call)
