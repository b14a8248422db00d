"""Certificates that change while the server runs"""

from __future__ import annotations

import re
import ssl
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.certificates import Authority, Identity
from tests.integration.tls import context, flags, serving, shaken, tls
from tests.raw_http import Connection, fetch
from tests.serving import Server
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path


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


def test_the_files_are_looked_at_beside_the_clients(
    standard_repository: Path, authority: Authority, tmp_path: Path
) -> None:
    """No handshake waits for a disk: nobody connects, and the new certificate is there for the first who does."""
    places = Identity(tmp_path / "cert", tmp_path / "key")
    first, second = authority.sign("fifth"), authority.sign("sixth")
    first.copy_to(places)
    server = Server.start(standard_repository, *flags(places), "--http-thread-count=1", ready=False)
    try:
        second.copy_to(places)
        server.log.wait_for(re.compile("the files of the TLS certificate have changed, new connections use"), 30)
        with shaken(server.http[1], context(authority)) as connection:
            shown = connection.getpeercert(binary_form=True)
        assert shown == ssl.PEM_cert_to_DER_cert(second.certificate.read_text(encoding="ascii"))
    finally:
        server.stop()
