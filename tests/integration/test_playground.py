"""The page at /: its files are there where they are asked for, in the same way as all other answers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.raw_http import fetch
from tests.serving import ROOT, Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES = ROOT / "native" / "crates" / "door-http" / "page"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    socket = tmp_path_factory.mktemp("page") / "http"
    arguments = ["--allow-playground=true", "--model-control-mode=explicit", f"--http-socket={socket}"]
    server = Server.start(tmp_path_factory.mktemp("empty"), *arguments)
    server.http_socket = str(socket)
    try:
        yield server
    finally:
        server.stop()


@pytest.mark.parametrize("file", sorted(FILES.iterdir()), ids=lambda file: file.name)
def test_each_file_is_served_as_it_is(server: Server, file: Path) -> None:
    path = "/" if file.name == "index.html" else f"/playground/{file.name}"
    kinds = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
    for address in (server.http, server.http_socket):
        answer = fetch(address, "GET", f"{path}?any=query")
        assert (answer.status, answer.body) == (200, file.read_bytes())
        headers = dict(answer.headers)
        assert headers["content-type"].partition(";")[0] == kinds[file.suffix]
        assert headers["x-content-type-options"] == "nosniff"


def test_nothing_is_loaded_from_elsewhere_and_it_stands_in_no_frame(server: Server) -> None:
    policy = dict(fetch(server.http, "GET", "/").headers)["content-security-policy"]
    assert re.match("default-src 'none'; script-src 'self'; style-src 'self';", policy)
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize("path", ["/playground", "/playground/", "/playground/../v2", "/playground/index.html", "//"])
def test_there_are_no_other_files(server: Server, path: str) -> None:
    assert fetch(server.http, "GET", path).status == 404


def test_it_can_be_read_and_nothing_else(server: Server) -> None:
    assert fetch(server.http, "HEAD", "/").status == 200
    answer = fetch(server.http, "POST", "/", body=b"{}")
    assert (answer.status, dict(answer.headers)["allow"]) == (405, "GET, HEAD")


def test_a_server_has_no_page_unless_it_is_asked_for(standard_server: Server) -> None:
    for path in ("/", "/playground/app.js"):
        assert fetch(standard_server.http, "GET", path).status == 404


def test_the_port_of_the_metrics_has_none(server: Server) -> None:
    assert fetch(server.metrics_address, "GET", "/").status == 404
