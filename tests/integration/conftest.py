"""What several of these tests use."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import pytest

from runners import Engine
from tests import models
from tests.certificates import Authority, Identity
from tests.gates import Gate
from tests.integration.regions import connect, open_objects
from tests.integration.slow_engine import Slow
from tests.integration.tls import serving, tls
from tests.serving import Server
from tests.stand_in_driver import make_cuda

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tritonclient.http import InferenceServerClient as Client

    from tests.conftest import StartServer
    from tests.integration.local import Start


@pytest.fixture(scope="module")
def engine(standard_repository: Path) -> Iterator[Engine]:
    """On the standard repository, in this process."""
    with Engine(standard_repository) as opened:
        yield opened


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's driver, as servers and their models find it: one that stands in for it"""
    folder = tmp_path / "driver"
    folder.mkdir()
    make_cuda(folder)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))


@pytest.fixture
def slow(repository: Path) -> Iterator[Slow]:
    models.write_gated(repository, extra=models.queue_policy("max_queue_size: 2"))
    with Engine(repository) as opened, Gate(repository) as gate:
        yield Slow(opened, ("127.0.0.1", opened.serve_metrics(port=0)), gate)


@pytest.fixture
def region_client(region_server: Server) -> Iterator[Client]:
    """A client that may register memory; the test leaves no region, no open object and no dead server."""
    with connect(region_server) as client:
        yield client
        client.unregister_system_shared_memory()
        assert client.get_system_shared_memory_status() == []
    assert open_objects(region_server) == 0
    assert region_server.process.poll() is None


@pytest.fixture
def socket_path() -> Iterator[str]:
    """Short enough for the address of a socket."""
    with tempfile.TemporaryDirectory(prefix="kushi-") as folder:
        yield f"{folder}/door"


@pytest.fixture(scope="module")
def local_server(standard_repository: Path) -> Iterator[tuple[Server, str]]:
    """A server over the standard repository with a local door, and the path of its socket."""
    with tempfile.TemporaryDirectory(prefix="kushi-") as folder:
        server = Server.start(standard_repository, f"--local-socket={folder}/door")
        try:
            yield server, f"{folder}/door"
        finally:
            server.stop()


@pytest.fixture
def start_engine(repository: Path, start_server: StartServer, socket_path: str) -> Start:
    """Starts a server with a slow and a quick model; a later one takes the place of an earlier."""
    models.write_gated(repository)
    models.write_add_sub(repository)
    return lambda: start_server(repository, f"--local-socket={socket_path}")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def identity(authority: Authority) -> Identity:
    return authority.sign("server")


@pytest.fixture(scope="module")
def tls_port(standard_repository: Path, identity: Identity) -> Iterator[int]:
    """Of an engine that speaks TLS."""
    with serving(standard_repository, tls(identity)) as port:
        yield port
