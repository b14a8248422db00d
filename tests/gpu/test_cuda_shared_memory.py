"""Tensors in CUDA memory of the client, on a real GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import models
from tests.cuda_driver import Gpu
from tests.cuda_regions import CHECKS, WAYS, Way
from tests.serving import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    return Gpu()


@pytest.fixture(scope="module")
def gpu_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("repository")
    models.write_add_sub(repository)
    models.write_identities(repository)
    server = Server.start(repository, "--allow-client-shm=true")
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, gpu_server: Server) -> Iterator[Way]:
    with Way(request.param, gpu_server) as opened:
        yield opened
        opened.client.unregister_cuda_shared_memory()
    assert gpu_server.process.poll() is None


@pytest.mark.parametrize("check", list(CHECKS))
def test_on_a_gpu(way: Way, gpu: Gpu, check: str) -> None:
    CHECKS[check](way, gpu)
