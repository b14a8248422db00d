"""Who gets in at the gRPC door: TLS with certificates of its own, a token for each kind of call, and when it is shut"""

from __future__ import annotations

import ssl
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import grpc
import numpy as np
import pytest
from tritonclient import grpc as triton
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from runners import ConfigInvalid, Engine, EngineOptions, GrpcOptions, HttpOptions, LogOptions, Restriction
from tests.certificates import Authority, Identity
from tests.integration.grpc_doors import (
    OK,
    SERVICE,
    add_sub_request,
    channel,
    ended,
    first_of,
    port_of,
    secure_channel,
    serving_grpc,
)
from tests.integration.tls import context, shaken, tls
from tests.raw_http import fetch
from tests.serving import GRPC_LINE, run_to_end
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.conftest import StartServer

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
LIVE: Final = f"{SERVICE}/ServerLive"


@pytest.fixture(scope="module")
def secure_port(standard_repository: Path, identity: Identity) -> Iterator[int]:
    with serving_grpc(standard_repository, GrpcOptions(tls=tls(identity))) as port:
        yield port


def test_a_client_that_trusts_the_authority_is_answered(secure_port: int, authority: Authority) -> None:
    with secure_channel(secure_port, authority) as opened:
        answer = service_pb2_grpc.GRPCInferenceServiceStub(opened).ModelInfer(add_sub_request(7))
    assert np.frombuffer(answer.raw_output_contents[0], np.int32).tolist() == [8] * 16


def test_tritonclient_is_answered_with_megabytes(secure_port: int, authority: Authority) -> None:
    rows = np.random.default_rng(7).random((1, 1 << 20), dtype=np.float32)
    given = triton.InferInput("INPUT0", list(rows.shape), "FP32")
    given.set_data_from_numpy(rows)
    with triton.InferenceServerClient(
        f"localhost:{secure_port}", ssl=True, root_certificates=str(authority.certificate)
    ) as client:
        assert np.array_equal(client.infer("identity_fp32", [given]).as_numpy("OUTPUT0"), rows)


def test_who_trusts_another_authority_or_speaks_no_tls_is_not(secure_port: int, tmp_path: Path) -> None:
    for opened in (secure_channel(secure_port, Authority(tmp_path, "another")), channel(secure_port)):
        with opened:
            code, _ = first_of(opened, LIVE)
        assert code == grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("kind", ["ec", "rsa"])
def test_both_versions_lead_to_http2(
    standard_repository: Path, authority: Authority, version: ssl.TLSVersion, kind: str
) -> None:
    chosen = context(authority)
    chosen.minimum_version = chosen.maximum_version = version
    chosen.set_alpn_protocols(["http/1.1", "h2"])
    options = GrpcOptions(tls=tls(authority.sign(f"grpc-{kind}-{version}", kind=kind)))
    with serving_grpc(standard_repository, options) as port, shaken(port, chosen) as connection:
        assert connection.selected_alpn_protocol() == "h2"
        assert connection.version() == {ssl.TLSVersion.TLSv1_2: "TLSv1.2", ssl.TLSVersion.TLSv1_3: "TLSv1.3"}[version]
        connection.sendall(PREFACE)
        assert connection.recv(9)[3] == 4, "SETTINGS come first"


def test_who_offers_only_http1_is_refused_and_who_offers_nothing_is_not(secure_port: int, authority: Authority) -> None:
    chosen = context(authority)
    chosen.set_alpn_protocols(["http/1.1"])
    with pytest.raises(ssl.SSLError, match=r"(?i)no.application.protocol"):
        shaken(secure_port, chosen)
    with shaken(secure_port, context(authority)) as connection:
        assert connection.selected_alpn_protocol() is None
        connection.sendall(PREFACE)
        assert connection.recv(9)[3] == 4


def test_http_and_grpc_have_certificates_of_their_own(
    standard_repository: Path, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other")
    options = EngineOptions(
        http=HttpOptions(tls=tls(authority.sign("http"))),
        grpc=GrpcOptions(tls=tls(other.sign("grpc"))),
        log=LogOptions(info=False),
    )
    with Engine(standard_repository, options=options) as engine:
        http, port = ("127.0.0.1", engine.serve_http(port=0)), engine.serve_grpc(port=0)
        assert fetch(http, "GET", "/v2", tls=context(authority)).status == 200
        with secure_channel(port, other) as right, secure_channel(port, authority) as wrong:
            assert first_of(right, LIVE) == OK
            assert first_of(wrong, LIVE)[0] == grpc.StatusCode.UNAVAILABLE


def test_the_unix_socket_stays_plain(standard_repository: Path, identity: Identity, socket_path: str) -> None:
    options = EngineOptions(grpc=GrpcOptions(tls=tls(identity)), log=LogOptions(info=False))
    with Engine(standard_repository, options=options) as engine:
        engine.serve_grpc_unix(socket_path)
        named = [("grpc.default_authority", "localhost")]
        with grpc.insecure_channel(f"unix:{socket_path}", options=named) as opened:
            assert first_of(opened, LIVE) == OK


def test_mutual_tls_lets_in_who_shows_a_certificate_of_the_authority(
    standard_repository: Path, authority: Authority, identity: Identity, tmp_path: Path, start_server: StartServer
) -> None:
    clients = Authority(tmp_path, "clients")
    server = start_server(
        standard_repository,
        "--grpc-use-ssl-mutual",
        f"--grpc-root-cert={clients.certificate}",
        f"--grpc-server-cert={identity.certificate}",
        f"--grpc-server-key={identity.key}",
    )
    port = port_of(server)
    with secure_channel(port, authority, clients.sign("known")) as known:
        assert first_of(known, LIVE) == OK
    for shown in (None, authority.sign("stranger")):
        with secure_channel(port, authority, shown) as opened:
            assert first_of(opened, LIVE)[0] == grpc.StatusCode.UNAVAILABLE
    refused = "a client at 127.0.0.1 is refused: it shows no certificate (--grpc-use-ssl-mutual)"
    eventually(lambda: refused in server.log.text(), "the log says why")


def test_a_renewed_certificate_is_shown_to_new_connections(
    standard_repository: Path, authority: Authority, tmp_path: Path
) -> None:
    places = Identity(tmp_path / "cert", tmp_path / "key")
    authority.sign("old").copy_to(places)

    def serial(port: int) -> object:
        with shaken(port, context(authority)) as connection:
            return (connection.getpeercert() or {})["serialNumber"]

    with (
        serving_grpc(standard_repository, GrpcOptions(tls=tls(places))) as port,
        secure_channel(port, authority) as kept,
    ):
        old = serial(port)
        assert first_of(kept, LIVE) == OK
        authority.sign("new").copy_to(places)
        eventually(lambda: serial(port) != old, "the new certificate is shown")
        assert first_of(kept, LIVE) == OK


CATEGORIES: Final = {
    "health": ("ServerLive", "ServerReady", "ModelReady"),
    "metadata": ("ServerMetadata", "ModelMetadata"),
    "inference": ("ModelInfer", "ModelStreamInfer"),
    "model-config": ("ModelConfig",),
    "statistics": ("ModelStatistics",),
    "model-repository": ("RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload"),
    "shared-memory": tuple(
        f"{kind}SharedMemory{verb}" for kind in ("System", "Cuda") for verb in ("Status", "Register", "Unregister")
    ),
    "trace": ("TraceSetting",),
    "logging": ("LogSettings",),
}
BESIDE: Final = {
    "/grpc.health.v1.Health/Check": "health",
    "/grpc.health.v1.Health/Watch": "health",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": "metadata",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": "metadata",
}
METHODS: Final = {
    **{f"{SERVICE}/{method}": category for category, methods in CATEGORIES.items() for method in methods},
    **BESIDE,
}


def token(category: str) -> tuple[str, str]:
    return f"triton-grpc-protocol-x-{category}", f"secret of {category}"


def refusal(category: str) -> tuple[grpc.StatusCode, str]:
    text = f"This protocol is restricted, expecting header 'triton-grpc-protocol-X-{category}'"
    return grpc.StatusCode.UNAVAILABLE, text


@pytest.fixture(scope="module")
def doors(standard_repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, grpc.Channel]]:
    """A port and a socket with a token of its own for each category"""
    rules = tuple(Restriction((name,), f"X-{name}", f"secret of {name}") for name in CATEGORIES)
    options = EngineOptions(grpc=GrpcOptions(restrictions=rules), log=LogOptions(info=False))
    path = tmp_path_factory.mktemp("restricted") / "grpc"
    with Engine(standard_repository, options=options) as engine, ExitStack() as stack:
        engine.serve_grpc_unix(path)
        named = [("grpc.default_authority", "localhost")]
        yield {
            "tcp": stack.enter_context(channel(engine.serve_grpc(port=0))),
            "unix": stack.enter_context(grpc.insecure_channel(f"unix:{path}", options=named)),
        }


@pytest.mark.parametrize("door", ["tcp", "unix"])
@pytest.mark.parametrize("path", METHODS)
def test_a_method_takes_the_token_of_its_category_and_no_other(
    doors: Mapping[str, grpc.Channel], door: str, path: str
) -> None:
    category = METHODS[path]
    others = [token(name) for name in CATEGORIES if name != category]
    name, value = token(category)
    wrong = [[], others, [(name, value + "x")], [(name, value[:-1])], [(name, "")], [(f"x-{category}", value)]]
    wrong.append([(name, "no"), (name, value)])
    for metadata in wrong:
        assert first_of(doors[door], path, metadata) == refusal(category), metadata
    for metadata in ([(name, value)], [*others, (name, value)]):
        assert "restricted" not in first_of(doors[door], path, metadata)[1]


def test_every_method_of_the_service_has_a_category() -> None:
    methods = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods
    assert {f"{SERVICE}/{method.name}" for method in methods} | BESIDE.keys() == METHODS.keys()


def test_the_token_is_asked_for_before_a_message_comes(doors: Mapping[str, grpc.Channel]) -> None:
    ending = threading.Event()

    def nothing() -> Iterator[bytes]:
        ending.wait(30)
        yield from ()

    call = doors["tcp"].stream_stream(f"{SERVICE}/ModelInfer")(nothing(), timeout=20)
    assert ended(lambda: next(call)) == refusal("inference")
    ending.set()


def test_health_and_reflection_answer_who_has_the_token(doors: Mapping[str, grpc.Channel]) -> None:
    check = doors["tcp"].unary_unary("/grpc.health.v1.Health/Check")
    assert check(b"", metadata=[token("health")]) == b"\x08\x01", "SERVING"
    for version in ("v1", "v1alpha"):
        ask = doors["tcp"].stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")
        answers = list(ask(iter([b"\x3a\x01*"]), metadata=[token("metadata")]))
        assert len(answers) == 1
        assert b"inference.GRPCInferenceService" in answers[0]


def test_tritonclient_carries_a_token(standard_repository: Path) -> None:
    rule = Restriction(("health",), "key", "hunter2")
    with (
        serving_grpc(standard_repository, GrpcOptions(restrictions=(rule,))) as port,
        triton.InferenceServerClient(f"127.0.0.1:{port}") as client,
    ):
        assert client.is_server_live(headers={"triton-grpc-protocol-key": "hunter2"})
        assert client.get_server_metadata().name == "triton"
        with pytest.raises(InferenceServerException) as caught:
            client.is_server_live()
        assert (caught.value.status(), caught.value.message()) == (
            "StatusCode.UNAVAILABLE",
            "This protocol is restricted, expecting header 'triton-grpc-protocol-key'",
        )


def test_no_token_of_a_call_is_in_the_log(standard_repository: Path, start_server: StartServer) -> None:
    rule = "--grpc-restricted-protocol=health,inference:key=hunter2"
    server = start_server(standard_repository, rule, "--log-verbose=255")
    with channel(port_of(server)) as opened:
        for value in ("hunter2", "hunter22", "hunter2" + "x" * 20_000):
            first_of(opened, LIVE, [("triton-grpc-protocol-key", value)])
            first_of(opened, f"{SERVICE}/ModelInfer", [("triton-grpc-protocol-key", value)])
    assert server.stop() == 0
    assert "hunter2" not in server.log.text()


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (
            Restriction(("all",), "k", "v"),
            (
                "unknown restricted protocol 'all', expected one of health, metadata, inference, shared-memory, "
                "model-config, model-repository, statistics, trace, logging"
            ),
        ),
        (Restriction(("health",), "a b", "v"), "'a b' is no name of an HTTP header"),
        (Restriction(("health",), "k", ""), "the value that the header 'k' must have is empty"),
    ],
)
def test_what_cannot_be_a_rule_is_refused_at_the_start(rule: Restriction, text: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        Engine(options=EngineOptions(grpc=GrpcOptions(restrictions=(rule,))))
    assert str(caught.value) == text


HTTP_TOKEN: Final = "--http-restricted-api=inference:k=v"
GRPC_TOKEN: Final = "--grpc-restricted-protocol=inference:k=v"


def http_tls(identity: Identity) -> list[str]:
    return ["--http-use-ssl", f"--http-server-cert={identity.certificate}", f"--http-server-key={identity.key}"]


def test_the_door_stays_shut_where_http_alone_is_locked(
    standard_repository: Path, identity: Identity, start_server: StartServer
) -> None:
    for locked in ([HTTP_TOKEN], http_tls(identity)):
        server = start_server(standard_repository, *locked, ready=False)
        assert server.stop() == 0
        assert "gRPC stays shut: HTTP asks for tokens or TLS, and gRPC would not." in server.log.text()
        assert GRPC_LINE.search(server.log.text()) is None


def test_it_is_open_where_it_is_locked_as_well_or_wanted_as_it_is(
    standard_repository: Path, identity: Identity, start_server: StartServer
) -> None:
    grpc_tls = [flag.replace("http", "grpc") for flag in http_tls(identity)]
    for flags in ([HTTP_TOKEN, GRPC_TOKEN], [HTTP_TOKEN, *grpc_tls], [HTTP_TOKEN, "--allow-grpc=true"], [GRPC_TOKEN]):
        server = start_server(standard_repository, *flags, ready=False)
        assert port_of(server) > 0
        assert "gRPC stays shut" not in server.log.text()
        server.kill()


def test_flags_that_contradict_each_other_end_the_start(standard_repository: Path, identity: Identity) -> None:
    whole = [f"--grpc-server-cert={identity.certificate}", f"--grpc-server-key={identity.key}"]
    for flags in (whole, ["--grpc-use-ssl", whole[0]], ["--grpc-use-ssl-mutual", *whole]):
        ended_early = run_to_end(f"--model-repository={standard_repository}", "--http-port=0", *flags)
        assert ended_early.returncode == 2, ended_early.stdout
