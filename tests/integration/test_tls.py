"""TLS on the HTTP door: who gets in, and with which certificate"""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
import tritonclient.http as httpclient
import tritonclient.http.aio as aioclient

from runners import Client, ConnectionLost, Engine, EngineOptions, HttpOptions, LogOptions
from tests.certificates import Authority, Identity
from tests.integration.tls import context, serving, shaken, tls
from tests.raw_http import Connection, fetch

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

ROW: Final = np.arange(16, dtype=np.int32).reshape(1, 16)


def test_our_client_checks_the_certificate_and_is_answered(tls_port: int, authority: Authority) -> None:
    with Client(f"https://localhost:{tls_port}", ca_cert=authority.certificate) as client:
        assert np.array_equal(client.add_sub.run(ROW, ROW)["OUTPUT0"], 2 * ROW)
        assert client.is_server_ready()


def test_an_awaited_call_travels_over_tls(tls_port: int, authority: Authority) -> None:
    async def ask() -> None:
        async with Client(f"https://127.0.0.1:{tls_port}", ca_cert=str(authority.certificate)) as client:
            results = await asyncio.gather(*(client.add_sub.async_run(ROW, ROW) for _ in range(8)))
            assert all(np.array_equal(result["OUTPUT1"], ROW - ROW) for result in results)

    asyncio.run(ask())


def triton_inputs(module: ModuleType) -> list[Any]:
    inputs = [module.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
    for given in inputs:
        given.set_data_from_numpy(ROW)
    return inputs


def test_tritonclient_is_answered(tls_port: int, authority: Authority) -> None:
    with httpclient.InferenceServerClient(
        f"localhost:{tls_port}", ssl=True, ssl_context_factory=lambda: context(authority)
    ) as client:
        result = client.infer("add_sub", triton_inputs(httpclient))
        assert np.array_equal(result.as_numpy("OUTPUT0"), 2 * ROW)


def test_the_asyncio_tritonclient_is_answered(tls_port: int, authority: Authority) -> None:
    async def ask() -> None:
        async with aioclient.InferenceServerClient(
            f"localhost:{tls_port}", ssl=True, ssl_context=context(authority)
        ) as client:
            result = await client.infer("add_sub", triton_inputs(aioclient))
            assert np.array_equal(result.as_numpy("OUTPUT0"), 2 * ROW)

    asyncio.run(ask())


def test_curl_is_answered(tls_port: int, authority: Authority) -> None:
    command = ["curl", "--silent", "--max-time", "30", "--cacert", str(authority.certificate)]
    shown = ["--output", "/dev/null", "--write-out", "%{http_code} %{http_version}"]
    out = subprocess.run(
        [*command, *shown, f"https://localhost:{tls_port}/v2"], capture_output=True, text=True, check=True, timeout=60
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


def test_who_speaks_only_http2_is_refused(tls_port: int, authority: Authority) -> None:
    chosen = context(authority)
    chosen.set_alpn_protocols(["h2"])
    with pytest.raises(ssl.SSLError, match=r"(?i)no.application.protocol"):
        shaken(tls_port, chosen)


def test_large_bodies_travel_both_ways(tls_port: int, authority: Authority) -> None:
    rows = np.random.default_rng(7).random((1, 4 << 20), dtype=np.float32)
    with Client(f"https://localhost:{tls_port}", ca_cert=authority.certificate) as client:
        assert np.array_equal(client.model("identity_fp32").run(rows)["OUTPUT0"], rows)


def test_the_unix_socket_and_the_metrics_port_stay_plain_unless_that_is_told_otherwise(
    standard_repository: Path, identity: Identity, authority: Authority, tmp_path: Path
) -> None:
    options = EngineOptions(http=HttpOptions(tls=tls(identity)), log=LogOptions(info=False))
    with Engine(standard_repository, options=options) as engine:
        engine.serve_http_unix(tmp_path / "http")
        assert fetch(str(tmp_path / "http"), "GET", "/v2").status == 200
        assert fetch(("127.0.0.1", engine.serve_metrics(port=0)), "GET", "/metrics").status == 200
        metrics = ("127.0.0.1", engine.serve_metrics(port=0, tls=True))
        assert fetch(metrics, "GET", "/metrics", tls=context(authority)).status == 200
        with Connection(metrics) as connection, pytest.raises(ConnectionError):
            connection.ask("GET", "/metrics")


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
