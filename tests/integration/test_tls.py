"""TLS on the HTTP door: who gets in, what becomes of those who do not, and certificates that change"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import subprocess
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
import tritonclient.http as httpclient
import tritonclient.http.aio as aioclient

from runners import (
    Client,
    ConfigInvalid,
    ConnectionLost,
    Engine,
    EngineFailed,
    EngineOptions,
    InvalidInput,
    ServerTls,
)
from runners.log import LogOptions
from tests.certificates import Authority, Identity
from tests.contract.requests import ADD_SUB_INPUTS, Infer, Output, Tensor, body, path
from tests.raw_http import Connection, fetch, frame
from tests.serving import Server, eventually, free_port, run_to_end

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

ROW: Final = np.arange(16, dtype=np.int32).reshape(1, 16)
MANY: Final = 1000


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def identity(authority: Authority) -> Identity:
    return authority.sign("server")


def tls(identity: Identity, authorities: Authority | None = None) -> ServerTls:
    return ServerTls(
        str(identity.certificate), str(identity.key), str(authorities.certificate) if authorities else None
    )


def context(authority: Authority, identity: Identity | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(authority.certificate))
    if identity is not None:
        made.load_cert_chain(identity.certificate, identity.key)
    return made


@contextmanager
def serving(repository: Path, server_tls: ServerTls) -> Iterator[int]:
    """An engine that speaks TLS, and its port"""
    given = EngineOptions(http_tls=server_tls, log=LogOptions(info=False))
    with Engine(repository, options=given) as engine:
        yield engine.serve_http(port=0)


@pytest.fixture(scope="module")
def port(standard_repository: Path, identity: Identity) -> Iterator[int]:
    with serving(standard_repository, tls(identity)) as port:
        yield port


def flags(identity: Identity) -> tuple[str, ...]:
    return (
        "--http-use-ssl",
        f"--http-server-cert={identity.certificate}",
        f"--http-server-key={identity.key}",
    )


def shaken(port: int, chosen: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port), timeout=30)
    return chosen.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False)


# --- who gets in ---


def test_our_client_checks_the_certificate_and_is_answered(port: int, authority: Authority) -> None:
    with Client(f"https://localhost:{port}", ca_cert=authority.certificate) as client:
        assert np.array_equal(client.add_sub.run(ROW, ROW)["OUTPUT0"], 2 * ROW)
        assert client.is_server_ready()


def test_an_awaited_call_travels_over_tls(port: int, authority: Authority) -> None:
    async def ask() -> None:
        async with Client(f"https://127.0.0.1:{port}", ca_cert=str(authority.certificate)) as client:
            results = await asyncio.gather(*(client.add_sub.async_run(ROW, ROW) for _ in range(8)))
            assert all(np.array_equal(result["OUTPUT1"], ROW - ROW) for result in results)

    asyncio.run(ask())


def triton_inputs(module: ModuleType) -> list[Any]:
    inputs = [module.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
    for given in inputs:
        given.set_data_from_numpy(ROW)
    return inputs


def test_tritonclient_is_answered(port: int, authority: Authority) -> None:
    with httpclient.InferenceServerClient(
        f"localhost:{port}", ssl=True, ssl_context_factory=lambda: context(authority)
    ) as client:
        result = client.infer("add_sub", triton_inputs(httpclient))
        assert np.array_equal(result.as_numpy("OUTPUT0"), 2 * ROW)


def test_the_asyncio_tritonclient_is_answered(port: int, authority: Authority) -> None:
    async def ask() -> None:
        async with aioclient.InferenceServerClient(
            f"localhost:{port}", ssl=True, ssl_context=context(authority)
        ) as client:
            result = await client.infer("add_sub", triton_inputs(aioclient))
            assert np.array_equal(result.as_numpy("OUTPUT0"), 2 * ROW)

    asyncio.run(ask())


def test_curl_is_answered(port: int, authority: Authority) -> None:
    command = ["curl", "--silent", "--max-time", "30", "--cacert", str(authority.certificate)]
    shown = ["--output", "/dev/null", "--write-out", "%{http_code} %{http_version}"]
    out = subprocess.run(
        [*command, *shown, f"https://localhost:{port}/v2"], capture_output=True, text=True, check=True, timeout=60
    )
    assert out.stdout == "200 1.1"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("kind", ["ec", "rsa"])
def test_both_versions_are_spoken_with_both_kinds_of_keys(
    standard_repository: Path, authority: Authority, version: ssl.TLSVersion, kind: str
) -> None:
    identity = authority.sign(f"{kind}-{version}", kind=kind)
    chosen = context(authority)
    chosen.minimum_version = chosen.maximum_version = version
    chosen.set_alpn_protocols(["h2", "http/1.1"])
    with serving(standard_repository, tls(identity)) as port, shaken(port, chosen) as connection:
        assert connection.version() == {ssl.TLSVersion.TLSv1_2: "TLSv1.2", ssl.TLSVersion.TLSv1_3: "TLSv1.3"}[version]
        assert connection.selected_alpn_protocol() == "http/1.1"
        connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200")


def test_who_speaks_only_http2_is_refused(port: int, authority: Authority) -> None:
    chosen = context(authority)
    chosen.set_alpn_protocols(["h2"])
    with pytest.raises(ssl.SSLError, match=r"(?i)no.application.protocol"):
        shaken(port, chosen)


def test_large_bodies_travel_both_ways(port: int, authority: Authority) -> None:
    rows = np.random.default_rng(7).random((1, 4 << 20), dtype=np.float32)
    with Client(f"https://localhost:{port}", ca_cert=authority.certificate) as client:
        assert np.array_equal(client.model("identity_fp32").run(rows)["OUTPUT0"], rows)


def test_the_unix_socket_stays_plain_and_the_metrics_port_does_not(
    standard_repository: Path, identity: Identity, authority: Authority, tmp_path: Path
) -> None:
    options = EngineOptions(http_tls=tls(identity), log=LogOptions(info=False))
    with Engine(standard_repository, options=options) as engine:
        engine.serve_http_unix(tmp_path / "http")
        assert fetch(str(tmp_path / "http"), "GET", "/v2").status == 200
        metrics = ("127.0.0.1", engine.serve_metrics(port=0))
        assert fetch(metrics, "GET", "/metrics", tls=context(authority)).status == 200
        with Connection(metrics) as connection, pytest.raises(ConnectionError):
            connection.ask("GET", "/metrics")


# --- whom our client does not trust ---


def test_a_certificate_of_an_unknown_authority_is_refused(port: int, tmp_path: Path) -> None:
    other = Authority(tmp_path, "another")
    text = (
        f"cannot connect to https://localhost:{port}: its certificate is of no authority that this client trusts "
        "(ca_cert)"
    )
    for trusted in (other.certificate, None):
        with Client(f"https://localhost:{port}", ca_cert=trusted) as client, pytest.raises(ConnectionLost) as caught:
            client.get_server_metadata()
        assert str(caught.value) == text
    with Client(f"https://localhost:{port}", insecure=True) as client:
        assert client.is_server_live()


@pytest.mark.parametrize(
    ("extension", "text"),
    [
        ("subjectAltName=DNS:elsewhere.example", "certificate not valid for name"),
        ("subjectAltName=DNS:localhost\nextendedKeyUsage=clientAuth", "(usage|Purpose|purpose)"),
    ],
)
def test_a_certificate_of_another_host_or_for_another_use_is_refused(
    standard_repository: Path, authority: Authority, extension: str, text: str
) -> None:
    identity = authority.sign(f"wrong{len(text)}", extension)
    with (
        serving(standard_repository, tls(identity)) as port,
        Client(f"https://localhost:{port}", ca_cert=authority.certificate) as client,
        pytest.raises(ConnectionLost, match=f"its certificate is refused: .*{text}"),
    ):
        client.get_server_metadata()


def test_a_server_without_tls_is_named(standard_server: Server, authority: Authority) -> None:
    url = f"https://127.0.0.1:{standard_server.http[1]}"
    with Client(url, ca_cert=authority.certificate) as client, pytest.raises(ConnectionLost, match="not speak TLS"):
        client.get_server_metadata()


def test_files_of_the_client_that_cannot_be_used_are_named(tmp_path: Path, identity: Identity) -> None:
    (tmp_path / "empty").touch()
    url, empty = "https://localhost:1", str(tmp_path / "empty")
    with pytest.raises(ConfigInvalid, match=r"^ca_cert '/nowhere': cannot be read: No such file or directory$"):
        Client(url, ca_cert="/nowhere")
    with pytest.raises(ConfigInvalid, match=r"^ca_cert '.*empty': expected certificates in PEM form, found none$"):
        Client(url, ca_cert=empty)
    with pytest.raises(ConfigInvalid, match=r"^client_key '.*empty': expected a private key in PEM form, without a"):
        Client(url, client_cert=identity.certificate, client_key=empty)
    with pytest.raises(InvalidInput, match="client_cert and client_key belong together"):
        Client(url, client_cert=identity.certificate)
    with pytest.raises(InvalidInput, match="are for https, got one for 'http://localhost:1'"):
        Client("http://localhost:1", ca_cert=empty)
    with pytest.raises(InvalidInput, match="headers are for http and https"):
        Client("unix:///nowhere", headers={"x": "y"})


# --- client certificates ---


def test_mutual_tls_lets_in_who_shows_a_certificate_of_the_authority(
    standard_repository: Path, identity: Identity, authority: Authority, tmp_path: Path
) -> None:
    clients = Authority(tmp_path, "clients")
    known, stranger = clients.sign("known"), authority.sign("stranger")
    with serving(standard_repository, tls(identity, clients)) as port:
        url, trusted = f"https://localhost:{port}", authority.certificate
        with Client(url, ca_cert=trusted, client_cert=known.certificate, client_key=known.key) as client:
            assert client.is_server_ready()
        with Client(url, ca_cert=trusted) as client, pytest.raises(ConnectionLost):
            client.get_server_metadata()
        with (
            Client(url, ca_cert=trusted, client_cert=stranger.certificate, client_key=stranger.key) as client,
            pytest.raises(ConnectionLost),
        ):
            client.get_server_metadata()
        assert fetch(("127.0.0.1", port), "GET", "/v2", tls=context(authority, known)).status == 200
        # TLS 1.3 tells the client after its own end of the handshake
        with pytest.raises(OSError, match=r"(?i)certificate|reset|eof"):
            fetch(("127.0.0.1", port), "GET", "/v2", tls=context(authority))


# --- flags ---


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("--http-use-ssl",), "--http-use-ssl needs --http-server-cert, expected a file in PEM form"),
        (
            ("--http-use-ssl", "--http-server-cert=c"),
            "--http-use-ssl needs --http-server-key, expected a file in PEM form",
        ),
        (("--http-use-ssl-mutual", "--http-server-cert=c"), "--http-use-ssl-mutual needs --http-server-key, expected"),
        (("--http-server-cert=c",), "--http-server-cert is given without --http-use-ssl: connections would be plain"),
        (
            ("--http-use-ssl-mutual", "--http-server-cert=c", "--http-server-key=k"),
            "--http-use-ssl-mutual needs --http-root-cert",
        ),
        (
            ("--http-use-ssl", "--http-server-cert=c", "--http-server-key=k", "--http-root-cert=r"),
            "--http-root-cert is given without --http-use-ssl-mutual",
        ),
        (
            ("--http-use-ssl", "--http-server-cert=/nowhere", "--http-server-key=k"),
            "--http-server-cert '/nowhere': cannot be read: No such file or directory",
        ),
    ],
)
def test_flags_that_do_not_make_sense_end_it_with_a_word(
    standard_repository: Path, given: tuple[str, ...], text: str
) -> None:
    ended = run_to_end(f"--model-repository={standard_repository}", f"--http-port={free_port()}", *given)
    assert ended.returncode != 0
    assert text in ended.stdout
    assert "Traceback" not in ended.stdout


def test_a_certificate_that_tls_does_not_take_is_named_with_what_it_takes(tmp_path: Path, identity: Identity) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n")
    text = f"'{broken}': expected a certificate of X.509 version 3, got "
    with pytest.raises(ConfigInvalid, match=f"^--http-server-cert {text}"):
        Engine(options=EngineOptions(http_tls=ServerTls(str(broken), str(identity.key))))
    with pytest.raises(ConfigInvalid, match=f"^client_cert {text}"):
        Client("https://localhost:1", client_cert=broken, client_key=identity.key)


def test_a_client_without_tls_is_told_of_the_other_scheme(port: int) -> None:
    with (
        Client(f"http://localhost:{port}") as client,
        pytest.raises(EngineFailed, match="its url begins with https://"),
    ):
        client.get_server_metadata()


def test_a_key_of_another_certificate_is_named(
    standard_repository: Path, identity: Identity, authority: Authority
) -> None:
    mixed = ServerTls(str(identity.certificate), str(authority.sign("other").key))
    with pytest.raises(ConfigInvalid, match=r"^--http-server-key '.*': expected the key of --http-server-cert '.*'$"):
        Engine(standard_repository, options=EngineOptions(http_tls=mixed))
    swapped = ServerTls(str(identity.key), str(identity.certificate))
    with pytest.raises(
        ConfigInvalid, match=r"^--http-server-cert '.*': expected certificates in PEM form, found none$"
    ):
        Engine(standard_repository, options=EngineOptions(http_tls=swapped))


# --- certificates that change ---


def serial(port: int, authority: Authority) -> object:
    with shaken(port, context(authority)) as connection:
        found = connection.getpeercert()
        assert found is not None
        return found["serialNumber"]


def test_new_connections_have_the_new_certificate_and_no_request_fails(
    standard_repository: Path, authority: Authority, tmp_path: Path
) -> None:
    places = Identity(tmp_path / "cert", tmp_path / "key")
    first, second = authority.sign("first"), authority.sign("second")
    first.copy_to(places)
    with ExitStack() as stack:
        port = stack.enter_context(serving(standard_repository, tls(places)))
        old = serial(port, authority)
        kept = stack.enter_context(Connection(("127.0.0.1", port), tls=context(authority)))
        stop, asked, failures = threading.Event(), [0], []

        def ask_again_and_again() -> None:
            while not stop.is_set():
                try:
                    # a connection for each: every one has a handshake
                    assert fetch(("127.0.0.1", port), "GET", "/v2/health/ready", tls=context(authority)).status == 200
                    asked[0] += 1
                except Exception as error:  # noqa: BLE001 - whatever it is
                    failures.append(error)

        threads = [threading.Thread(target=ask_again_and_again) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            second.copy_to(places)
            eventually(lambda: serial(port, authority) != old, "the new certificate is shown")
            before = asked[0]
            eventually(lambda: asked[0] > before + 10, "requests go on")
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert failures == []
        assert kept.ask("GET", "/v2").status == 200


def test_what_cannot_be_used_is_logged_once_and_the_old_certificate_stays(
    standard_repository: Path, authority: Authority, tmp_path: Path
) -> None:
    places = Identity(tmp_path / "cert", tmp_path / "key")
    first, second = authority.sign("third"), authority.sign("fourth")
    first.copy_to(places)
    server = Server.start(standard_repository, *flags(places), "--http-thread-count=1", ready=False)
    try:
        port = server.http[1]
        old = serial(port, authority)
        places.certificate.write_bytes(second.certificate.read_bytes())
        complaint = re.compile(r"what they held before stays in use: --http-server-key '.*': expected the key of")

        def complained() -> bool:
            assert serial(port, authority) == old
            return any(complaint.search(line) for line in server.log.lines)

        eventually(complained, "the key of another certificate is complained about")
        places.key.write_bytes(second.key.read_bytes())
        eventually(lambda: serial(port, authority) != old, "the new certificate is shown")
        assert sum(bool(complaint.search(line)) for line in server.log.lines) == 1
        assert "PRIVATE" not in server.log.text()
    finally:
        server.stop()


# --- who does not do as he should ---


def test_a_head_that_cannot_be_read_has_a_text_here_too(port: int, authority: Authority) -> None:
    for head, status, text in (
        (b"hello\r\n\r\n", 400, "the head of the request is no HTTP/1.1"),
        (
            b"GET /v2 HTTP/1.1" + b"\r\nx: y" * 200 + b"\r\n\r\n",
            431,
            "the head of the request has more than 100 headers",
        ),
    ):
        with Connection(("127.0.0.1", port), tls=context(authority)) as connection:
            assert connection.ask("GET", "/v2").status == 200
            connection.send(head)
            response = connection.receive()
            assert response.status == status
            assert response.error.startswith(text)


def test_plain_http_and_garbage_are_closed_and_harm_nobody(port: int, authority: Authority) -> None:
    for sent in (
        b"GET /v2 HTTP/1.1\r\nhost: h\r\n\r\n",
        bytes(range(256)) * 8,
        b"\x16\x03\x01\xff\xff" + b"\0" * 65535,
    ):
        with Connection(("127.0.0.1", port)) as connection:
            connection.send(sent)
            with pytest.raises(ConnectionError):
                connection.receive()
    assert fetch(("127.0.0.1", port), "GET", "/v2", tls=context(authority)).status == 200


def test_clients_that_never_finish_their_handshake_keep_nobody_out(
    standard_repository: Path, identity: Identity, authority: Authority
) -> None:
    server = Server.start(
        standard_repository, *flags(identity), "--http-thread-count=1", "--http-head-timeout-secs=600", ready=False
    )
    try:
        with ExitStack() as stack:
            silent = [stack.enter_context(socket.create_connection(server.http, timeout=30)) for _ in range(MANY)]
            # some say nothing, the others not enough
            for one in silent[::2]:
                one.sendall(b"\x16\x03\x01\x02\x00")
            for _ in range(3):
                assert fetch(server.http, "GET", "/v2/health/live", tls=context(authority)).status == 200
            # The place of the one that has been silent for the longest was needed.
            assert silent[1].recv(100) == b""
    finally:
        server.stop()


def test_a_client_that_asks_for_new_keys_over_and_over_is_cut_off(port: int, authority: Authority) -> None:
    process = subprocess.Popen(
        ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-tls1_2", "-CAfile", str(authority.certificate)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        # R on a line of its own asks for a renegotiation, which is refused.
        _, said = process.communicate(b"R\n" * 50, timeout=60)
    finally:
        process.kill()
        process.wait()
    assert b"renegotiation" in said.lower()
    assert fetch(("127.0.0.1", port), "GET", "/v2", tls=context(authority)).status == 200


def test_a_handshake_that_stops_in_the_middle_is_ended(
    standard_repository: Path, identity: Identity, authority: Authority
) -> None:
    server = Server.start(standard_repository, *flags(identity), "--http-head-timeout-secs=1", ready=False)
    try:
        with (
            socket.create_connection(server.http, timeout=30) as silent,
            socket.create_connection(server.http, timeout=30) as halfway,
        ):
            hello = ssl.MemoryBIO()
            half = context(authority).wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
            with pytest.raises(ssl.SSLWantReadError):
                half.do_handshake()
            halfway.sendall(hello.read())
            # the server's end of the handshake, to which there is no answer
            assert halfway.recv(1) == b"\x16"
            while halfway.recv(1 << 16):
                pass
            assert silent.recv(1) == b""
    finally:
        server.stop()


# --- the end ---


def test_a_drain_answers_what_is_under_way_and_says_goodbye(
    standard_repository: Path, identity: Identity, authority: Authority
) -> None:
    server = Server.start(standard_repository, *flags(identity), ready=False)
    try:
        asking = Infer("add_sub", ADD_SUB_INPUTS)
        headers, sent = body(asking)
        with (
            Connection(server.http, tls=context(authority)) as idle,
            Connection(server.http, tls=context(authority)) as busy,
            socket.create_connection(server.http, timeout=30) as silent,
        ):
            assert idle.ask("GET", "/v2").status == 200
            assert busy.ask("POST", path("add_sub"), headers, sent).status == 200
            server.terminate()
            # read to the end that the server announces: one that it does not announce is an error here
            assert idle.is_closed()
            assert busy.is_closed()
            assert silent.recv(100) == b""
        assert server.wait() == 0
    finally:
        server.stop()


def test_a_drain_waits_for_a_client_that_reads_a_large_answer_slowly(
    standard_repository: Path, identity: Identity, authority: Authority
) -> None:
    values = bytes(32 << 20)
    asking = Infer(
        "identity_fp32", [Tensor("INPUT0", "FP32", (1, len(values) // 4), raw=values)], [Output("OUTPUT0", binary=True)]
    )
    server = Server.start(standard_repository, *flags(identity), ready=False)
    try:
        with Connection(server.http, tls=context(authority)) as connection:
            headers, sent = body(asking)
            connection.send(frame("POST", path("identity_fp32"), headers, sent))
            # The answer has begun, and there is no room for the rest of it.
            assert connection.socket.recv(1) == b"H"
            server.terminate()
            server.log.wait_for(re.compile("Waiting for in-flight requests"), 30)
            connection.buffer = b"H"
            response = connection.receive()
            assert response.status == 200
            assert response.body.endswith(values)
            assert connection.is_closed()
        assert server.wait() == 0
    finally:
        server.stop()
