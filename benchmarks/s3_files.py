"""
A server that shows a folder as a bucket of S3, as fast as a file is sent: what a benchmark of reading is measured
against.

    python -m benchmarks.s3_files FOLDER

prints its port. It lists all at once, and answers ranges; whoever asks is trusted.
"""

from __future__ import annotations

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

__all__ = ["serve"]

_WHEN = "2026-01-01T00:00:00.000Z"


def serve(folder: Path) -> None:
    handler = type("Handler", (_Handler,), {"folder": folder})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # an answer's head goes out with what follows
    wbufsize = 64 * 1024
    disable_nagle_algorithm = True
    folder: Path

    def log_message(self, *_: Any) -> None:  # noqa: ANN401 - as the class has it
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        asked = parse_qs(url.query)
        if "list-type" in asked:
            self._list(asked.get("prefix", [""])[0])
            return
        file = self.folder / unquote(url.path).lstrip("/").partition("/")[2]
        size = file.stat().st_size
        start, end = 0, size
        if stated := self.headers.get("Range"):
            first, _, last = stated.removeprefix("bytes=").partition("-")
            start, end = int(first), min(int(last) + 1, size)
        self.send_response(206 if stated else 200)
        self.send_header("Content-Length", str(end - start))
        self.send_header("ETag", _tag(file))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        if stated:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
        self.end_headers()
        self.wfile.flush()
        with file.open("rb") as opened:
            while start < end:
                start += os.sendfile(self.connection.fileno(), opened.fileno(), start, end - start)

    def _list(self, prefix: str) -> None:
        files = (file for file in sorted(self.folder.rglob("*")) if file.is_file())
        named = ((file.relative_to(self.folder).as_posix(), file) for file in files)
        found = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>{_WHEN}</LastModified><ETag>{escape(_tag(file))}</ETag>"
            f"<Size>{file.stat().st_size}</Size></Contents>"
            for name, file in named
            if name.startswith(prefix)
        )
        text = f"<ListBucketResult><Name>bucket</Name>{found}<IsTruncated>false</IsTruncated></ListBucketResult>"
        content = text.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _tag(file: Path) -> str:
    found = file.stat()
    return f'"{found.st_mtime_ns:x}-{found.st_size:x}"'


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
