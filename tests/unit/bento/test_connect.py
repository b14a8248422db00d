"""A connection to an engine on another host: to the first of its addresses that takes it."""

from __future__ import annotations

import asyncio
import socket

import pytest

from runners.bento.relay.connect import connected
from tests.serving import free_port

Found = list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]]


def found(*ports: int) -> Found:
    return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port)) for port in ports]


def connect(monkeypatch: pytest.MonkeyPatch, addresses: Found) -> socket.socket:
    async def getaddrinfo(*_: object, **__: object) -> Found:
        return addresses

    async def main() -> socket.socket:
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        return await connected(("engine", 80))

    return asyncio.run(main())


def test_an_address_that_refuses_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with connect(monkeypatch, found(free_port(), port)) as connection:
            assert connection.getpeername() == ("127.0.0.1", port)


def test_the_refusal_of_the_last_address_is_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConnectionRefusedError):
        connect(monkeypatch, found(free_port(), free_port()))


def test_a_host_without_an_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match=r"^engine has no address$"):
        connect(monkeypatch, [])
