"""A run, or a build, that stands still as long as a test wants"""

import socket
from contextlib import suppress

__all__ = ["wait_for"]


def wait_for(gate: str) -> None:
    """Stands at a gate (`tests.gates`), where there is one, until it is let through"""
    with socket.socket(socket.AF_UNIX) as stood, suppress(ConnectionRefusedError):
        stood.connect(f"\0{gate}")
        stood.recv(1)
