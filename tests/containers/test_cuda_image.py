"""The image for GPUs, on a base without CUDA and a machine without a driver: all of it that needs neither."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.containers.docker import READ_ONLY, Container, docker
from tests.e2e.pictures import encoded, written
from tests.models import write_add_sub
from tests.serving import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.containers.conftest import Bases, Build

pytestmark = pytest.mark.timeout(1200)

SOURCES = "/home/bentoml/bento/src"
VERSIONS = """
import importlib.metadata, kushi_native, onnxruntime
print(onnxruntime.get_available_providers())
print(*(f"{each.name}=={each.version}" for each in importlib.metadata.distributions()))
"""


def normalized(requirement: str) -> str:
    return requirement.lower().replace("_", "-")


@pytest.fixture(scope="module")
def image(build: Build, bases: Bases) -> Iterator[str]:
    name = "kushi-test:cuda"
    arguments = ("variant=cuda", f"base_image={bases.full}", "python_version=3.11")
    done = build.run("deploy/image/build", name, *(word for each in arguments for word in ("--arg", each)))
    assert done.returncode == 0, done.stdout + done.stderr
    yield name
    docker("rmi", "--force", name)


def test_its_packages_are_those_of_the_lock(image: str) -> None:
    providers, versions = docker("run", "--rm", image, "python", "-c", VERSIONS).splitlines()[-2:]
    assert "CUDAExecutionProvider" in providers
    installed = {normalized(each) for each in versions.split()}
    lock = (ROOT / "requirements/bento-gpu.txt").read_text()
    # of some packages it has another version for another Python
    wanted = {normalized(each) for each in re.findall(r"^\S+==[^\s;]+", lock, re.MULTILINE)}
    assert [each.partition("==")[0] for each in installed - wanted] == ["kushi-native"]
    assert {each.partition("==")[0] for each in installed if each.startswith("onnxruntime")} == {"onnxruntime-gpu"}


def test_it_serves_models_that_ask_for_no_gpu(image: str) -> None:
    with Container(image, *READ_ONLY) as container, container.until_ready().client() as client:
        upload = {"document": ("words.png", encoded(written("seven birds")), "image/png")}
        assert client.post("/read", files=upload).raise_for_status().json()["text"] == "seven birds"


def test_a_model_for_a_gpu_is_refused_and_the_driver_named(image: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    write_add_sub(tmp_path, extra="instance_group { kind: KIND_GPU }")
    words = ["--workdir", SOURCES, "--volume", f"{tmp_path}:/models:ro", image]
    serve = ["python", "-m", "runners", "serve", "--model-repository=/models"]
    done = subprocess.run(
        ["docker", "run", "--rm", *words, *serve], capture_output=True, text=True, timeout=120, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "kind KIND_GPU but server does not support GPUs: the driver of NVIDIA cannot be loaded: libcuda.so.1" in said
