"""Where an engine speaks HTTP, and what it sees of a request to the Bento."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.bento.place import Place
from runners.bento.relay.origin import Origin
from tests.unit.bento.asgi import Call

PLACE = Place(Path("/run/a.local"), Path("/run/a.http"), Path("/run/a.presence"))


@pytest.mark.parametrize(
    ("url", "address", "host", "prefix"),
    [
        ("http://engine.internal:8000", ("engine.internal", 8000), b"engine.internal:8000", b""),
        ("HTTP://engine.internal", ("engine.internal", 80), b"engine.internal", b""),
        ("http://10.0.0.1:1/", ("10.0.0.1", 1), b"10.0.0.1:1", b""),
        ("http://[::1]:8000", ("::1", 8000), b"[::1]:8000", b""),
        ("http://gateway/models/of/a/team/", ("gateway", 80), b"gateway", b"/models/of/a/team"),
    ],
)
def test_a_url_says_where_it_is(url: str, address: tuple[str, int], host: bytes, prefix: bytes) -> None:
    assert Origin.of(url) == Origin(url, address, host, prefix)


def test_a_local_socket_speaks_no_http() -> None:
    assert Origin.of("unix:///run/kushi.sock") is None


def test_an_engine_elsewhere_is_addressed_by_its_own_name_and_path() -> None:
    origin = Origin.of("http://gateway/team")
    assert origin is not None
    call = Call("/v2/health/live", headers=[(b"accept", b"a"), (b"host", b"bento.example"), (b"x-host", b"b")])
    seen = origin.addressed(call.scope)
    assert seen["headers"] == [(b"host", b"gateway"), (b"accept", b"a"), (b"x-host", b"b")]
    assert seen["raw_path"] == b"/team/v2/health/live"
    assert seen["method"] == call.scope["method"]


def test_the_own_engine_sees_what_the_client_sent() -> None:
    call = Call("/v2", headers=[(b"host", b"bento.example")])
    assert Origin.at(PLACE).addressed(call.scope) is call.scope
