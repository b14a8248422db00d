"""A connection to an engine on another host"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

__all__ = ["connected"]


async def connected(address: tuple[str, int]) -> socket.socket:
    """A socket that does not block, to the first of the host's addresses that takes the connection"""
    loop = asyncio.get_running_loop()
    refusal = OSError(f"{address[0]} has no address")
    for family, kind, protocol, where in await _addresses(address):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(0)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(connection, where)
        except OSError as error:
            connection.close()
            refusal = error
        except BaseException:
            connection.close()
            raise
        else:
            return connection
    raise refusal


async def _addresses(address: tuple[str, int]) -> list[tuple[int, int, int, Any]]:
    try:
        # A number needs no look-up. Names are looked up in threads, of which there are few.
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await asyncio.get_running_loop().getaddrinfo(*address, type=socket.SOCK_STREAM)
    return [(family, kind, protocol, where) for family, kind, protocol, _, where in found]
