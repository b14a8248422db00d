"""What stands in for the stores, and a way to it on which things go wrong."""

from __future__ import annotations

import json
import logging
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, Self

import boto3
from botocore.config import Config
from moto.server import ThreadedMotoServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["ENVIRONMENT", "S3", "Faults", "Store", "upload"]

ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
BUCKET = "models"
_CHUNK = 64 * 1024


class Store(Protocol):
    """One bucket."""

    def put(self, path: str, content: bytes) -> None: ...

    def delete(self, path: str) -> None: ...


class S3:
    """A bucket of moto's server, and the URL of a repository in it."""

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        _, self.port = self._server.get_host_and_port()
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{self.port}",
            aws_access_key_id="key",
            aws_secret_access_key="secret",
            region_name="us-east-1",
            config=Config(retries={"max_attempts": 1}),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def new_bucket(self, name: str = BUCKET) -> None:
        """An empty one in place of what there was."""
        with suppress(self.client.exceptions.NoSuchBucket):
            for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=name):
                for one in page.get("Contents", []):
                    self.client.delete_object(Bucket=name, Key=one["Key"])
            self.client.delete_bucket(Bucket=name)
        self.client.create_bucket(Bucket=name)

    def url(self, prefix: str = "repository", port: int | None = None) -> str:
        return f"s3://127.0.0.1:{port or self.port}/{BUCKET}/{prefix}"

    def put(self, path: str, content: bytes) -> None:
        self.client.put_object(Bucket=BUCKET, Key=path, Body=content)

    def delete(self, path: str) -> None:
        self.client.delete_object(Bucket=BUCKET, Key=path)


def upload(store: Store, folder: Path, prefix: str = "repository") -> None:
    """All files of a folder."""
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            store.put(f"{prefix}/{file.relative_to(folder)}", file.read_bytes())


class Faults:
    """A way to a server. Each connection carries one request, so that each request meets what is wrong then."""

    def __init__(self, port: int) -> None:
        self.to = port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.requests: list[str] = []
        """Method and path of all that came"""
        self.before: Callable[[str], None] = lambda _: None
        """What happens before a request goes on"""
        self.fault: Callable[[str], str] = lambda _: ""
        """What is wrong with a request: "stall", "cut", "slow down", "error", "denied" or nothing"""
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for one in self._open:
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            head = self._head(client)
            if not head:
                return
            request = " ".join(head.split(b"\r\n")[0].decode().split()[:2])
            self.requests.append(request)
            self.before(request)
            match self.fault(request):
                case "stall":
                    threading.Event().wait(120)
                case "slow down":
                    client.sendall(_answer("503 Slow Down", "<Error><Code>SlowDown</Code></Error>"))
                case "denied":
                    client.sendall(
                        _answer(
                            "403 Forbidden",
                            "<Error><Code>AccessDenied</Code><Message>no</Message><Token-0>a secret</Token-0></Error>",
                        )
                    )
                case "error":
                    client.sendall(
                        _answer(
                            "500 Internal Server Error",
                            f"<Error><Code>InternalError</Code><RequestId>{len(self.requests)}</RequestId></Error>",
                        )
                    )
                case fault:
                    self._pass_on(client, head, cuts=fault == "cut")

    def _head(self, client: socket.socket) -> bytes:
        head = b""
        while b"\r\n\r\n" not in head:
            chunk = client.recv(_CHUNK)
            if not chunk:
                return b""
            head += chunk
        return head.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)

    def _pass_on(self, client: socket.socket, head: bytes, *, cuts: bool) -> None:
        with socket.create_connection(("127.0.0.1", self.to)) as server:
            server.sendall(head)
            answer = b""
            while chunk := server.recv(_CHUNK):
                answer += chunk
        # half of it, and no more
        client.sendall(answer[: len(answer) // 2] if cuts else answer)


def _answer(status: str, text: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


def credentials(path: Path, document: object) -> str:
    """Triton's file of them."""
    path.write_text(json.dumps(document))
    return str(path)
