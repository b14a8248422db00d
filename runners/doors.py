"""
Whether the doors could be opened, found out before models are loaded. Nothing listens here: opening a door is the
native core's, and what it says counts. The texts are those of the core.
"""

import socket
from errno import EADDRINUSE
from pathlib import Path

from .errors import ConfigInvalid

__all__ = ["probe_tcp", "probe_unix"]


def probe_tcp(address: str, port: int, *, reuse_port: bool = False) -> None:
    """Raises when the port cannot be bound; port 0 always can"""
    try:
        family, kind, protocol, _, at = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if reuse_port:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            probe.bind(at)
    except OSError as error:
        if error.errno == EADDRINUSE:
            raise ConfigInvalid(
                f"Socket '{address}:{port}' already in use: choose another port, or stop what listens there"
            ) from None
        raise ConfigInvalid(f"cannot listen on {address}:{port}: {error.strerror or error}") from None


def probe_unix(path: str) -> None:
    """Raises when the socket cannot be made; a socket that nobody listens on any more will be replaced"""
    refused = f"cannot listen on the socket {path}"
    if Path(path).exists() and not Path(path).is_socket():
        raise ConfigInvalid(f"{refused}: it exists and is not a socket")
    if not Path(path).parent.is_dir():
        raise ConfigInvalid(f"{refused}: '{Path(path).parent}' is not a directory")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(0)  # a listener too busy to accept is alive all the same
        try:
            probe.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return
        except BlockingIOError:
            pass
        except OSError as error:
            raise ConfigInvalid(f"{refused}: {error.strerror or error}") from None
    raise ConfigInvalid(f"Socket '{path}' already in use: choose another path, or stop what listens there")
