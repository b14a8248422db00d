"""The ways to call one engine: in process, over the local door, over HTTP, over gRPC."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from runners import Client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runners import Engine
    from runners.calls import Calls

__all__ = ["WAYS", "door"]

WAYS: Final = ("engine", "unix", "http", "grpc")


@contextmanager
def door(engine: Engine, way: str, folder: Path) -> Iterator[Calls]:
    """What calls the engine that way; a socket is made in the folder."""
    match way:
        case "unix":
            engine.serve_local(folder / "socket")
            with Client(f"unix://{folder / 'socket'}") as client:
                yield client
        case "http":
            with Client(f"http://127.0.0.1:{engine.serve_http(port=0)}") as client:
                yield client
        case "grpc":
            with Client(f"grpc://127.0.0.1:{engine.serve_grpc(port=0)}") as client:
                yield client
        case _:
            yield engine
