"""A small server that speaks as Azure's blob storage does, as far as listing, reading and writing go."""

from __future__ import annotations

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

__all__ = ["ACCOUNT", "CONTAINER", "KEY", "Azure"]

ACCOUNT = "account"
CONTAINER = "models"
KEY = "a2V5"
_WHEN = "Mon, 30 Nov 2026 00:00:00 GMT"
_MOST_OF_A_PAGE = 3


class Azure:
    """One container."""

    def __init__(self) -> None:
        blobs: dict[str, bytes] = {}
        self.blobs = blobs
        self.requests: list[str] = []
        handler = type("Handler", (_Handler,), {"blobs": blobs, "requests": self.requests})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}/{ACCOUNT}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def put(self, path: str, content: bytes) -> None:
        self.blobs[path] = content

    def delete(self, path: str) -> None:
        del self.blobs[path]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    blobs: dict[str, bytes]
    requests: list[str]

    def log_message(self, *_: Any) -> None:  # noqa: ANN401 - as the class has it
        pass

    def do_GET(self) -> None:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        self.requests.append(f"GET {self.path}")
        if not self._blob():
            self._list(asked)
        elif (content := self.blobs.get(self._blob())) is None:
            self._answer(404, _error("BlobNotFound"))
        elif (wanted := self.headers.get("If-Match")) not in {None, _tag(content)}:
            self._answer(412, _error("ConditionNotMet"), {"x-was": str(wanted)})
        else:
            self._read(content)

    do_HEAD = do_GET  # noqa: N815 - as the class has it

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.blobs[self._blob()] = content
        self._answer(201, b"", {"ETag": _tag(content), "x-ms-request-server-encrypted": "true"})

    def do_DELETE(self) -> None:
        found = self.blobs.pop(self._blob(), None)
        self._answer(404 if found is None else 202, b"")

    def _blob(self) -> str:
        return "/".join(unquote(urlsplit(self.path).path).split("/")[3:])

    def _read(self, content: bytes) -> None:
        stated = self.headers.get("x-ms-range") or self.headers.get("Range")
        headers = {"ETag": _tag(content), "x-ms-blob-type": "BlockBlob", "Accept-Ranges": "bytes"}
        if stated is None:
            self._answer(200, content, headers)
            return
        start, _, end = stated.removeprefix("bytes=").partition("-")
        part = content[int(start) : int(end) + 1 if end else None]
        headers["Content-Range"] = f"bytes {start}-{int(start) + len(part) - 1}/{len(content)}"
        self._answer(206, part, headers)

    def _list(self, asked: dict[str, str]) -> None:
        names = sorted(name for name in self.blobs if name.startswith(asked.get("prefix", "")))
        begin = int(asked.get("marker", "0"))
        page = names[begin : begin + _MOST_OF_A_PAGE]
        blobs = "".join(
            f"<Blob><Name>{escape(name)}</Name><Properties><Last-Modified>{_WHEN}</Last-Modified>"
            f"<Etag>{_tag(self.blobs[name]).strip(chr(34))}</Etag><Content-Length>{len(self.blobs[name])}</Content-Length>"
            "<Content-Type>application/octet-stream</Content-Type><BlobType>BlockBlob</BlobType></Properties></Blob>"
            for name in page
        )
        left = begin + len(page) < len(names)
        marker = f"<NextMarker>{begin + len(page)}</NextMarker>" if left else "<NextMarker/>"
        text = (
            f'<?xml version="1.0" encoding="utf-8"?><EnumerationResults ContainerName="{CONTAINER}">'
            f"<Blobs>{blobs}</Blobs>{marker}</EnumerationResults>"
        )
        self._answer(200, text.encode(), {"Content-Type": "application/xml"})

    def _answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Last-Modified": _WHEN, "x-ms-version": "2023-11-03", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _tag(content: bytes) -> str:
    return f'"0x{hashlib.sha256(content).hexdigest()[:16].upper()}"'


def _error(code: str) -> bytes:
    return f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code></Error>'.encode()
