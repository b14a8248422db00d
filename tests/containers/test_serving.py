"""What a container answers, with nothing but its defaults and a root file system that it cannot write to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import tritonclient.http

from tests import models
from tests.e2e.pictures import encoded, written
from tests.serving import labelled, metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.containers.docker import Container

pytestmark = pytest.mark.timeout(1200)

SERVED = "/home/bentoml/bento/src/model_repository"
ASK_INSIDE = (
    "import urllib.request as r; print(r.urlopen('http://127.0.0.1:3000/v2/models/lines/ready', timeout=10).status)"
)
# 60 MB each, below the bound of a body, and together several times what /dev/shm holds
LARGE = """
import asyncio, glob
import numpy as np
from runners import Client

async def ask():
    client = Client("unix://" + glob.glob("/tmp/kushi-*/*.local")[0])
    sent = [np.full((1, 15_000_000), number, np.float32) for number in range(4)]
    results = await asyncio.gather(*(client.identity_fp32.async_run(one) for one in sent))
    assert all(np.array_equal(one, result["OUTPUT0"]) for one, result in zip(sent, results))
    client.close()

asyncio.run(ask())
"""


@pytest.fixture(scope="module")
def container(start: Callable[..., Container], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """It has a model for large tensors besides its own"""
    folder = tmp_path_factory.mktemp("models")
    models.write_identities(folder)
    with start("--volume", f"{folder / 'identity_fp32'}:{SERVED}/identity_fp32:ro") as container:
        yield container.until_ready()


def test_the_endpoints_answer(container: Container) -> None:
    with container.client() as client:
        upload = {"document": ("words.png", encoded(written("seven birds")), "image/png")}
        assert client.post("/read", files=upload).raise_for_status().json()["text"] == "seven birds"


def test_tritonclient_is_answered(container: Container) -> None:
    with tritonclient.http.InferenceServerClient(f"{container.host}:3000") as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("orientation")
        tensor = tritonclient.http.InferInput("x", [1, 3, 48, 192], "FP32")
        tensor.set_data_from_numpy(np.zeros((1, 3, 48, 192), np.float32))
        shares = client.infer("orientation", [tensor]).as_numpy("save_infer_model/scale_0.tmp_1")
        assert shares is not None
        assert np.isclose(shares.sum(), 1)


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/v2/health/live", "/v2/health/ready"])
def test_it_says_that_it_is_well(container: Container, path: str) -> None:
    assert container.fetch("GET", path).status == 200


def test_the_metrics_are_those_of_bentoml_and_of_the_engine(container: Container) -> None:
    values = metrics(container.address)
    assert labelled(values, "nv_inference_pending_request_count", model="detector", version="1") == 0
    assert any(name.startswith("bentoml_service_") for name in values)


def test_tensors_may_be_larger_than_dev_shm(container: Container) -> None:
    held = int(container.run("df", "--output=size", "--block-size=1", "/dev/shm").split()[-1])
    assert held == 64 * 2**20, "docker's default has changed"
    container.run("env", "PYTHONPATH=src", "python", "-c", LARGE)
    row = np.arange(15_000_000, dtype=np.float32)[np.newaxis]
    with tritonclient.http.InferenceServerClient(f"{container.host}:3000", network_timeout=60) as client:
        tensor = tritonclient.http.InferInput("INPUT0", list(row.shape), "FP32")
        tensor.set_data_from_numpy(row)
        answer = client.infer("identity_fp32", [tensor]).as_numpy("OUTPUT0")
    assert np.array_equal(row, answer)


def test_none_of_its_processes_is_root_and_none_can_write_to_the_image(container: Container) -> None:
    assert container.run("id", "-u") == container.run("id", "-g") == "1034"
    status = container.run("bash", "-c", "cat /proc/[0-9]*/status")
    owners = {line.split()[1] for line in status.splitlines() if line.startswith("Uid:")}
    assert owners == {"1034"}
    with pytest.raises(AssertionError, match="Read-only file system"):
        container.run("touch", "/home/bentoml/bento/x")


def test_it_starts_without_a_network(start: Callable[..., Container]) -> None:
    with start("--network", "none", "--health-interval", "1s") as container:
        container.until("healthy")
        assert container.run("python", "-c", ASK_INSIDE) == "200"
