"""A client over gRPC: TLS, tokens, connections that end, and servers that are not ours"""

# ruff: noqa: ANN401, N802 - messages and servers of grpcio have no types, and methods their own names

from __future__ import annotations

import asyncio
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from runners import Client, Engine, EngineOptions, GrpcOptions, HttpOptions, LogOptions, Restriction, errors
from tests.certificates import Authority
from tests.integration.grpc_doors import serving_grpc
from tests.integration.tls import tls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.certificates import Identity
    from tests.serving import Server

FIRST: Final = np.arange(16, dtype=np.int32).reshape(1, 16)


def works(client: Client) -> bool:
    return bool((client.infer("add_sub", FIRST, FIRST)["OUTPUT0"] == 2 * FIRST).all())


def test_who_trusts_the_authority_is_answered_over_tls(
    standard_repository: Path, authority: Authority, identity: Identity
) -> None:
    rows = np.random.default_rng(7).random((1, 1 << 20), dtype=np.float32)
    with (
        serving_grpc(standard_repository, GrpcOptions(tls=tls(identity))) as port,
        Client(f"grpcs://localhost:{port}", ca_cert=authority.certificate) as client,
    ):
        assert works(client)
        assert (client.infer("identity_fp32", rows)["OUTPUT0"] == rows).all()
        assert client.is_server_ready()


def test_who_does_not_is_told_why(standard_repository: Path, identity: Identity, tmp_path: Path) -> None:
    other = Authority(tmp_path, "another")
    with serving_grpc(standard_repository, GrpcOptions(tls=tls(identity))) as port:
        with (
            Client(f"grpcs://localhost:{port}", ca_cert=other.certificate) as client,
            pytest.raises(errors.ConnectionLost, match="of no authority that this client trusts"),
        ):
            works(client)
        with Client(f"grpcs://localhost:{port}", insecure=True) as client:
            assert works(client)
        with Client(f"grpc://localhost:{port}") as client, pytest.raises(errors.KushiError):
            works(client)


def test_a_client_shows_its_certificate(
    standard_repository: Path, authority: Authority, identity: Identity, tmp_path: Path
) -> None:
    known, stranger = authority.sign("client"), Authority(tmp_path, "another").sign("stranger")
    trusted = authority.certificate
    with serving_grpc(standard_repository, GrpcOptions(tls=tls(identity, authority))) as port:
        url = f"grpcs://localhost:{port}"
        with Client(url, ca_cert=trusted, client_cert=known.certificate, client_key=known.key) as client:
            assert works(client)
        with Client(url, ca_cert=trusted) as client, pytest.raises(errors.ConnectionLost):
            works(client)
        with (
            Client(url, ca_cert=trusted, client_cert=stranger.certificate, client_key=stranger.key) as client,
            pytest.raises(errors.ConnectionLost),
        ):
            works(client)


def test_a_port_of_another_protocol_is_named(server: Server, authority: Authority, identity: Identity) -> None:
    with (
        Client(f"grpc://127.0.0.1:{server.http[1]}") as client,
        pytest.raises(errors.KushiError, match=r"gRPC has a port of its own"),
    ):
        works(client)
    options = EngineOptions(http=HttpOptions(tls=tls(identity)), log=LogOptions(info=False))
    with (
        Engine(options=options) as engine,
        Client(f"grpcs://localhost:{engine.serve_http(port=0)}", ca_cert=authority.certificate) as client,
        pytest.raises(errors.ConnectionLost, match="its gRPC and its HTTP have a port each"),
    ):
        works(client)


def test_a_token_goes_with_every_call(standard_repository: Path) -> None:
    restrictions = (Restriction(("inference", "metadata"), "secret", "hunter2"),)
    with serving_grpc(standard_repository, GrpcOptions(restrictions=restrictions)) as port:
        url = f"grpc://127.0.0.1:{port}"
        with Client(url, headers={"triton-grpc-protocol-secret": "hunter2"}) as client:
            assert works(client)
            assert client.get_server_metadata()["name"] == "triton"
        with Client(url, headers={"triton-grpc-protocol-secret": "hunter3"}) as client:
            for call in (lambda: works(client), client.get_server_metadata):
                with pytest.raises(
                    errors.AccessDenied, match="expecting header 'triton-grpc-protocol-secret'"
                ) as refused:
                    call()
                assert "hunter3" not in str(refused.value)
            assert client.is_server_live()


def test_no_call_is_lost_where_a_server_closes_its_connections(standard_repository: Path) -> None:
    options = GrpcOptions(max_connection_age_ms=100, max_connection_age_grace_ms=10_000)
    with (
        serving_grpc(standard_repository, options) as port,
        Client(f"grpc://127.0.0.1:{port}") as client,
        ThreadPoolExecutor(4) as threads,
    ):
        until = time.monotonic() + 2

        def ask() -> int:
            count = 0
            while time.monotonic() < until:
                assert works(client)
                count += 1
            return count

        assert min(asked.result() for asked in [threads.submit(ask) for _ in range(4)]) > 10


def test_more_calls_than_a_connection_may_have_wait_for_their_turn(standard_repository: Path) -> None:
    async def what(client: Client) -> None:
        calls = [client.async_infer("add_sub", FIRST + number, FIRST) for number in range(2000)]
        for number, result in enumerate(await asyncio.gather(*calls)):
            assert (result["OUTPUT0"] == 2 * FIRST + number).all()

    with serving_grpc(standard_repository, GrpcOptions()) as port, Client(f"grpc://127.0.0.1:{port}") as client:
        asyncio.run(what(client))


class Foreign(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc] # untyped
    """A server on grpcio that answers what `answer` makes of a request"""

    def __init__(self, answer: Callable[[Any, Any], Any]) -> None:
        self.answer = answer
        self.metadata: list[dict[str, str]] = []

    def ModelInfer(self, request: Any, context: Any) -> Any:
        self.metadata.append(dict(context.invocation_metadata()))
        return self.answer(request, context)

    def ModelMetadata(self, request: Any, context: Any) -> Any:
        answer = service_pb2.ModelMetadataResponse(name=request.name)
        for name in ("A", "B"):
            answer.inputs.add(name=name)
        return answer


@contextmanager
def foreign(answer: Callable[[Any, Any], Any], **options: object) -> Iterator[tuple[Client, Foreign]]:
    server = grpc.server(ThreadPoolExecutor(2), **options)
    servicer = Foreign(answer)
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with Client(f"grpc://127.0.0.1:{port}", headers={"x-tenant": "a"}) as client:
            yield client, servicer
    finally:
        server.stop(None).wait()


def typed(request: Any, _: Any) -> Any:
    """The names of the inputs, and numbers of every width, in typed fields"""
    answer = service_pb2.ModelInferResponse(model_name=request.model_name, model_version="3", id=request.id)
    for datatype, field, values in (
        ("BYTES", "bytes_contents", [name.name.encode() for name in request.inputs]),
        ("FP32", "fp32_contents", [0.5, -1.5]),
        ("INT8", "int_contents", [-1, 2]),
        ("UINT64", "uint64_contents", [2**64 - 1, 0]),
        ("BOOL", "bool_contents", [True, False]),
    ):
        output = answer.outputs.add(name=datatype, datatype=datatype, shape=[2])
        getattr(output.contents, field).extend(values)
    return answer


def test_a_server_that_answers_in_typed_fields_is_understood() -> None:
    with foreign(typed) as (client, server):
        result = client.infer("theirs", FIRST, FIRST, request_id="x")
        assert (result.model_name, result.model_version, result.request_id) == ("theirs", "3", "x")
        assert result.timings is None
        assert result["BYTES"].tolist() == [b"A", b"B"]
        for name, dtype, values in (
            ("FP32", np.float32, [0.5, -1.5]),
            ("INT8", np.int8, [-1, 2]),
            ("UINT64", np.uint64, [2**64 - 1, 0]),
            ("BOOL", np.bool_, [True, False]),
        ):
            assert result[name].dtype == dtype
            assert result[name].tolist() == values
        assert server.metadata[0]["x-tenant"] == "a"


@pytest.mark.parametrize(
    ("code", "text", "raised"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "no such input", errors.InvalidInput),
        (grpc.StatusCode.NOT_FOUND, "no such model", errors.ModelNotFound),
        (grpc.StatusCode.PERMISSION_DENIED, "no", errors.AccessDenied),
        (grpc.StatusCode.UNAUTHENTICATED, "who?", errors.AccessDenied),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "full", errors.Overloaded),
        (grpc.StatusCode.UNAVAILABLE, "Exceeds maximum queue size", errors.Overloaded),
        (grpc.StatusCode.UNAVAILABLE, "Server is stopping", errors.ShuttingDown),
        (grpc.StatusCode.INTERNAL, "100 % 串\nbroken", errors.EngineFailed),
    ],
)
def test_a_refusal_of_another_server_has_its_kind_and_its_text(
    code: grpc.StatusCode, text: str, raised: type[errors.KushiError]
) -> None:
    def refuse(_: Any, context: Any) -> None:
        context.abort(code, text)

    with foreign(refuse) as (client, _), pytest.raises(raised) as caught:
        client.infer("theirs", FIRST, FIRST, request_id="x")
    assert (str(caught.value), caught.value.request_id) == (text, "x")


def test_what_another_server_does_not_have_is_unsupported() -> None:
    with foreign(typed) as (client, _):
        with pytest.raises(errors.Unsupported, match="this server has no call for metrics over gRPC"):
            client.get_metrics()
        with pytest.raises(errors.Unsupported):
            client.get_model_repository_index()


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        ({"shape": [3]}, r"output 'Y' of FP32 \[3\] in 8 bytes"),
        ({"datatype": "FP33"}, "FP33"),
        ({"raw": []}, "fewer contents than outputs"),
        ({"contents": "int_contents"}, "they are of INT32"),
    ],
)
def test_an_answer_that_does_not_fit_together_is_an_error(broken: dict[str, Any], text: str) -> None:
    def answer(*_: object) -> Any:
        given = service_pb2.ModelInferResponse()
        output = given.outputs.add(name="Y", datatype=broken.get("datatype", "FP32"), shape=broken.get("shape", [2]))
        if "contents" in broken:
            getattr(output.contents, broken["contents"]).extend([1, 2])
        else:
            given.raw_output_contents.extend(broken.get("raw", [bytes(8)]))
        return given

    with foreign(answer) as (client, _), pytest.raises(errors.EngineFailed, match=text):
        client.infer("theirs", FIRST, FIRST)


def test_a_trace_goes_with_the_call() -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with foreign(typed) as (client, server):
        with Client(client.url, headers={"traceparent": parent}) as traced:
            traced.infer("theirs", FIRST, FIRST)
        assert server.metadata[-1]["traceparent"] == parent


def test_a_server_that_says_nothing_ends_with_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with Client(f"grpc://127.0.0.1:{port}") as client, pytest.raises(errors.DeadlineExceeded):
            client.infer("theirs", {"A": FIRST}, deadline=0.3)


def test_a_request_goes_out_once() -> None:
    """A server that dies in the midst of a call may have computed it"""
    asked, may_end = threading.Event(), threading.Event()
    count = 0

    def stand(*_: object) -> Any:
        nonlocal count
        count += 1
        asked.set()
        may_end.wait(20)
        return service_pb2.ModelInferResponse()

    with socket.create_server(("127.0.0.1", 0)) as listening, foreign(stand) as (client, _):
        target = ("127.0.0.1", int(client.url.rpartition(":")[2]))
        between = threading.Thread(target=relay_until, args=(listening, target, asked))
        between.start()
        with (
            Client(f"grpc://127.0.0.1:{listening.getsockname()[1]}") as relayed,
            pytest.raises(errors.ConnectionLost, match="was lost before the answer was complete"),
        ):
            relayed.infer("theirs", {"A": FIRST})
        may_end.set()
        between.join()
    assert count == 1


def relay_until(listening: socket.socket, target: tuple[str, int], over: threading.Event) -> None:
    """Between one connection and a server, until a call has come there"""
    inside, _ = listening.accept()
    with inside, socket.create_connection(target) as outside:
        for end in (inside, outside):
            end.settimeout(0.02)
        while not over.is_set():
            for source, sink in ((inside, outside), (outside, inside)):
                try:
                    sink.sendall(source.recv(1 << 16))
                except TimeoutError:
                    continue
