"""What RFC 9113 asks of a server whose client breaks its rules, at the gRPC door"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.integration.grpc_doors import SERVICE
from tests.integration.http2_rules import CONNECTION, HARMLESS, STREAM, Rule
from tests.raw_http2 import PREFACE, Http2, Kind, frame, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runners import Engine

LIVE: Final = f"{SERVICE}/ServerLive"


@pytest.fixture(scope="module")
def port(engine: Engine) -> int:
    return engine.serve_grpc(port=0)


@pytest.fixture
def client(port: int) -> Iterator[Http2]:
    with Http2(("127.0.0.1", port)) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _goes_on(port: int) -> Iterator[None]:
    """Whatever one client does, the next one is answered"""
    yield
    with Http2(("127.0.0.1", port)) as other:
        other.ask(1, LIVE, b"")
        assert other.status(1) == 0


@pytest.mark.parametrize("rule", CONNECTION, ids=lambda rule: f"{rule.section} {rule.name}")
def test_what_breaks_the_connection_ends_it_with_its_code(client: Http2, rule: Rule) -> None:
    client.send(rule.sent)
    goaways = [found.code for found in client.rest() if found.kind == Kind.GOAWAY]
    assert goaways, "the connection ended without a word"
    assert goaways[-1] in rule.codes


@pytest.mark.parametrize("rule", STREAM, ids=lambda rule: f"{rule.section} {rule.name}")
def test_what_breaks_a_call_ends_no_less_than_that(client: Http2, rule: Rule) -> None:
    codes = []
    client.send(rule.sent)
    # a reset may follow the first answer to a ping
    for payload in (b"ping one", b"ping two"):
        client.send(frame(Kind.PING, payload=payload))
        while (found := client.next()) is not None and found.payload != payload:
            if found.kind in {Kind.RST_STREAM, Kind.GOAWAY}:
                codes.append(found.code)
        if found is None:
            break
    assert [code for code in codes if code in rule.codes], codes


@pytest.mark.parametrize("name", HARMLESS)
def test_what_breaks_nothing_is_taken(client: Http2, name: str) -> None:
    client.send(HARMLESS[name])
    client.ask(101, LIVE, b"")
    assert client.status(101) == 0


@pytest.mark.parametrize(
    "first", [b"GET / HTTP/1.1\r\nhost: h\r\n\r\n", PREFACE[:-1] + b"x", bytes(24), b"\x16\x03\x01" * 20]
)
def test_what_begins_otherwise_is_closed(port: int, first: bytes) -> None:
    with Http2(("127.0.0.1", port), shakes=False) as client:
        client.send(first)
        assert {found.kind for found in client.rest()} <= {Kind.SETTINGS, Kind.GOAWAY, Kind.WINDOW_UPDATE}


def test_settings_are_the_first_frame_of_a_client(port: int) -> None:
    with Http2(("127.0.0.1", port), shakes=False) as client:
        client.send(PREFACE, frame(Kind.PING, payload=bytes(8)), settings({}))
        assert not [found for found in client.rest() if found.kind == Kind.PING]


def test_settings_come_first_and_are_acknowledged(port: int) -> None:
    with Http2(("127.0.0.1", port), shakes=False) as client:
        client.send(PREFACE, settings({}))
        first = client.next()
        assert first is not None
        assert (first.kind, first.flags, first.stream) == (Kind.SETTINGS, 0, 0)
        acknowledged = client.until(lambda found: found.kind == Kind.SETTINGS)
        assert acknowledged is not None
        assert (acknowledged.flags, acknowledged.payload) == (1, b"")


def test_a_ping_is_answered_with_its_bytes(client: Http2) -> None:
    assert client.is_answered(b"\0\1\2\3\xff\xfe\xfd\xfc")


def test_a_client_that_says_goodbye_has_its_calls_answered(client: Http2) -> None:
    client.begin(1, LIVE)
    client.send(frame(Kind.GOAWAY, payload=bytes(8)))
    client.data(1, bytes(5))
    assert client.status(1) == 0
    assert client.until_kind(Kind.HEADERS) is None, "and the connection ends then"
