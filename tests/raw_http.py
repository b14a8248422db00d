"""HTTP over a plain socket, byte by byte: nothing is corrected, retried or hidden on the way.

A test that needs an exact byte on the wire writes it with ``frame`` or by hand and reads the answer with
``Connection.receive``. Every wait has a limit, so a server that hangs fails a test instead of the run.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from tests.waiting import LateAnswer

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Address", "Connection", "Headers", "Response", "chunked", "fetch", "frame"]

Address = tuple[str, int] | str
"""Host and port, or the path of a Unix socket."""

Headers = Sequence[tuple[str, str]]

WAIT_S: Final = 30.0


def text(data: bytes) -> str:
    """A body as text; what a client sent that is no UTF-8 may come back as it was."""
    return data.decode(errors="replace")


@dataclass(frozen=True)
class Response:
    """One answer as it came: header names in lower case, the body whole."""

    version: str
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        values = [value for key, value in self.headers if key == name.lower()]
        return ", ".join(values) if values else None

    def json(self) -> Any:  # noqa: ANN401 - a JSON document may be anything
        return json.loads(text(self.body))

    @property
    def error(self) -> str:
        """Text of an error body, which must hold that one member and nothing else."""
        parsed = json.loads(text(self.body))
        assert list(parsed) == ["error"], parsed
        message = parsed["error"]
        assert isinstance(message, str)
        return message

    @property
    def infer_header_length(self) -> int:
        """Length of the JSON part of an inference response."""
        stated = self.header("inference-header-content-length")
        return len(self.body) if stated is None else int(stated)

    @property
    def infer_json(self) -> Any:  # noqa: ANN401 - a JSON document may be anything
        return json.loads(text(self.body[: self.infer_header_length]))

    @property
    def binary(self) -> bytes:
        """What follows the JSON part of an inference response."""
        return self.body[self.infer_header_length :]


class Connection:
    """A socket to the server with a buffer of what arrived and was not read yet."""

    def __init__(self, address: Address, timeout: float = WAIT_S, tls: ssl.SSLContext | None = None) -> None:
        if isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        else:
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        self.buffer = b""
        try:
            self.socket.connect(address)
            if not isinstance(address, str):
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                # An end that was not announced is an error there.
                self.socket = tls.wrap_socket(self.socket, server_hostname="localhost", suppress_ragged_eofs=False)
        except OSError:
            self.socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def finish_sending(self) -> None:
        """Closes our half: the server reads end of file, we can still read its answer."""
        self.socket.shutdown(socket.SHUT_WR)

    def _more(self) -> bool:
        """Reads what is there; false when the server has closed."""
        try:
            data = self.socket.recv(1 << 20)
        except ConnectionResetError:
            return False
        except TimeoutError as error:
            raise LateAnswer(f"the server has sent no more than {self.buffer[:1000]!r}") from error
        self.buffer += data
        return data != b""

    def _until(self, mark: bytes) -> bytes:
        while mark not in self.buffer:
            if not self._more():
                raise ConnectionError(f"the server closed before {mark!r}; it had sent {self.buffer!r}")
        head, self.buffer = self.buffer.split(mark, 1)
        return head

    def _exactly(self, count: int) -> bytes:
        # `bytes` would be copied whole with every piece that comes: half a minute for a large answer on a busy machine
        read = bytearray(self.buffer)
        try:
            while len(read) < count:
                self.buffer = b""
                if not self._more():
                    raise ConnectionError(f"the server closed {count - len(read)} bytes early")
                read += self.buffer
        finally:
            self.buffer = bytes(read)
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def _chunks(self) -> bytes:
        body = b""
        while (size := int(self._until(b"\r\n").split(b";")[0], 16)) > 0:
            body += self._exactly(size)
            self._exactly(2)
        self._until(b"\r\n")
        return body

    def receive(self, method: str = "POST") -> Response:
        """Next answer on this connection, interim ones (100) included."""
        head = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        version, code = head[0].split(" ")[:2]
        pairs = [line.split(":", 1) for line in head[1:]]
        headers = tuple((name.strip().lower(), value.strip()) for name, value in pairs)
        status = int(code)
        fields = dict(headers)
        if method == "HEAD" or status < 200 or status == 204:
            body = b""
        elif fields.get("transfer-encoding") == "chunked":
            body = self._chunks()
        elif "content-length" in fields:
            body = self._exactly(int(fields["content-length"]))
        else:
            while self._more():
                pass
            body, self.buffer = self.buffer, b""
        return Response(version, status, headers, body)

    def ask(self, method: str, path: str, headers: Headers = (), body: bytes = b"") -> Response:
        self.send(frame(method, path, headers, body))
        return self.receive(method)

    def is_closed(self) -> bool:
        """Waits for the server to close; false if it sends something instead."""
        return self.buffer == b"" and not self._more()

    def has_answer(self) -> bool:
        """Whether bytes are there now, without waiting for them."""
        if self.buffer:
            return True
        timeout = self.socket.gettimeout()
        self.socket.setblocking(False)
        try:
            self.buffer += self.socket.recv(1 << 20)
        except BlockingIOError:
            return False
        finally:
            self.socket.settimeout(timeout)
        return self.buffer != b""


def frame(method: str, path: str, headers: Headers = (), body: bytes = b"") -> bytes:
    """A request as bytes, with Host, and with Content-Length unless the headers frame the body themselves."""
    names = {name.lower() for name, _ in headers}
    lines = [f"{method} {path} HTTP/1.1"]
    if "host" not in names:
        lines.append("Host: test")
    if not names & {"content-length", "transfer-encoding"} and (body or method == "POST"):
        lines.append(f"Content-Length: {len(body)}")
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def chunked(parts: Iterable[bytes]) -> bytes:
    """A body in the chunked coding, one chunk for each part."""
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def fetch(
    address: Address,
    method: str,
    path: str,
    headers: Headers = (),
    body: bytes = b"",
    *,
    tls: ssl.SSLContext | None = None,
) -> Response:
    """One request on a connection of its own."""
    with Connection(address, tls=tls) as connection:
        return connection.ask(method, path, headers, body)
