"""TLS that does not come about: whom our client does not trust, and what cannot be used"""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from runners import (
    Client,
    ConfigInvalid,
    ConnectionLost,
    Engine,
    EngineFailed,
    EngineOptions,
    HttpOptions,
    InvalidInput,
    ServerTls,
)
from tests.certificates import Authority, Identity
from tests.integration.tls import serving, tls
from tests.serving import free_port, run_to_end

if TYPE_CHECKING:
    from pathlib import Path

    from tests.serving import Server


def test_a_certificate_of_an_unknown_authority_is_refused(tls_port: int, tmp_path: Path) -> None:
    other = Authority(tmp_path, "another")
    text = (
        f"cannot connect to https://localhost:{tls_port}: its certificate is of no authority that this client trusts "
        "(ca_cert)"
    )
    for trusted in (other.certificate, None):
        with (
            Client(f"https://localhost:{tls_port}", ca_cert=trusted) as client,
            pytest.raises(ConnectionLost) as caught,
        ):
            client.get_server_metadata()
        assert str(caught.value) == text
    with Client(f"https://localhost:{tls_port}", insecure=True) as client:
        assert client.is_server_live()


@pytest.mark.parametrize(
    ("extension", "text"),
    [
        ("subjectAltName=DNS:elsewhere.example", "is not for this name, but for elsewhere.example"),
        (
            "subjectAltName=DNS:elsewhere.example,IP:10.0.0.1",
            "is not for this name, but for elsewhere.example, 10.0.0.1",
        ),
        ("subjectAltName=DNS:localhost\nextendedKeyUsage=clientAuth", "is for another purpose (extendedKeyUsage)"),
    ],
)
def test_a_certificate_of_another_host_or_for_another_use_is_refused(
    standard_repository: Path, authority: Authority, extension: str, text: str
) -> None:
    identity = authority.sign(f"wrong{len(text)}", extension)
    with (
        serving(standard_repository, tls(identity)) as port,
        Client(f"https://localhost:{port}", ca_cert=authority.certificate) as client,
        pytest.raises(ConnectionLost, match=re.escape(f"its certificate {text}") + "$"),
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
    with pytest.raises(InvalidInput, match="are for https and grpcs, got one for 'http://localhost:1'"):
        Client("http://localhost:1", ca_cert=empty)
    with pytest.raises(InvalidInput, match="headers are for http, https, grpc and grpcs, got them"):
        Client("unix:///nowhere", headers={"x": "y"})


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
    text = f"'{broken}': a certificate in it cannot be read$"
    with pytest.raises(ConfigInvalid, match=f"^--http-server-cert {text}"):
        Engine(options=EngineOptions(http=HttpOptions(tls=ServerTls(str(broken), str(identity.key)))))
    with pytest.raises(ConfigInvalid, match=f"^--http-root-cert {text}"):
        Engine(
            options=EngineOptions(
                http=HttpOptions(tls=ServerTls(str(identity.certificate), str(identity.key), str(broken)))
            )
        )
    with pytest.raises(ConfigInvalid, match=f"^client_cert {text}"):
        Client("https://localhost:1", client_cert=broken, client_key=identity.key)
    with pytest.raises(ConfigInvalid, match=f"^ca_cert {text}"):
        Client("https://localhost:1", ca_cert=broken)


def test_a_key_that_tls_does_not_take_is_named_with_what_it_takes(tmp_path: Path, identity: Identity) -> None:
    small = tmp_path / "small.key"
    command = ["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024", "-out", str(small)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    text = f"'{small}': expected a key for RSA of 2048 to 8192 bits, for ECDSA on P-256 or P-384, or for Ed25519$"
    with pytest.raises(ConfigInvalid, match=f"^--http-server-key {text}"):
        Engine(options=EngineOptions(http=HttpOptions(tls=ServerTls(str(identity.certificate), str(small)))))
    with pytest.raises(ConfigInvalid, match=f"^client_key {text}"):
        Client("https://localhost:1", client_cert=identity.certificate, client_key=small)


def test_a_client_without_tls_is_told_of_the_other_scheme(tls_port: int) -> None:
    with (
        Client(f"http://localhost:{tls_port}") as client,
        pytest.raises(EngineFailed, match="its url begins with https://"),
    ):
        client.get_server_metadata()


def test_a_key_of_another_certificate_is_named(
    standard_repository: Path, identity: Identity, authority: Authority
) -> None:
    mixed = ServerTls(str(identity.certificate), str(authority.sign("other").key))
    with pytest.raises(ConfigInvalid, match=r"^--http-server-key '.*': expected the key of --http-server-cert '.*'$"):
        Engine(standard_repository, options=EngineOptions(http=HttpOptions(tls=mixed)))
    with pytest.raises(ConfigInvalid, match=r"^client_key '.*': expected the key of client_cert '.*'$"):
        Client("https://localhost:1", client_cert=mixed.certificate, client_key=mixed.key)
    swapped = ServerTls(str(identity.key), str(identity.certificate))
    with pytest.raises(
        ConfigInvalid, match=r"^--http-server-cert '.*': expected certificates in PEM form, found none$"
    ):
        Engine(standard_repository, options=EngineOptions(http=HttpOptions(tls=swapped)))
