"""Where an engine speaks HTTP, and what it sees of a request to the Bento."""

from __future__ import annotations

import pytest

from runners.bento.relay.origin import Origin


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
