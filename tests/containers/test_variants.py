"""The Bentos for GPUs, as far as a machine without one can tell: what their images are made of, and that it fits."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.serving import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.containers.conftest import Build

pytestmark = pytest.mark.timeout(1200)

# of the TensorRT that an onnxruntime-gpu was built with, as the constant in the code of its provider says
BUILT_WITH = {"1.31.1": "10.14.1"}


@pytest.fixture(scope="module", params=["cuda", "cuda-tensorrt"])
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def bento(build: Build, variant: str) -> Path:
    return build.bento("--arg", f"variant={variant}")


def base_image() -> str:
    asked: dict[str, Any] = yaml.safe_load((ROOT / "bentofile.yaml").read_text())
    return str(asked["args"]["base_image"])


def locked(name: str) -> dict[str, str]:
    """The versions of a lock"""
    text = (ROOT / "requirements" / name).read_text()
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE))


def test_the_image_stands_on_cuda_and_has_the_onnxruntime_of_the_gpu(bento: Path, variant: str) -> None:
    dockerfile = (bento / "env/docker/Dockerfile").read_text()
    assert re.findall("^FROM (.*)$", dockerfile, re.MULTILINE) == [f"{base_image()} AS base-container"]
    assert "uv venv --python 3.12 /app/.venv" in dockerfile
    assert ("libnvinfer" in dockerfile) == (variant == "cuda-tensorrt")
    described = yaml.safe_load((bento / "bento.yaml").read_text())
    assert described["image"]["base_image"] == base_image()
    assert described["image"]["build_include"] == ["wheels"]

    requirements = (bento / "env/python/requirements.txt").read_text()
    versions = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", requirements, re.MULTILINE))
    assert versions == locked("bento-gpu.txt")
    assert "onnxruntime-gpu" in versions
    assert "onnxruntime" not in versions
    (wheel,) = re.findall(r"^\./wheels/(kushi_native-.*\.whl)$", requirements, re.MULTILINE)
    assert (bento / "src/wheels" / wheel).is_file()


def test_bentoml_build_as_typed_is_the_one_for_cuda(build: Build) -> None:
    typed, asked = (build.bento(*words) / "env" for words in ((), ("--arg", "variant=cuda")))
    for name in ("docker/Dockerfile", "python/requirements.txt"):
        assert (typed / name).read_text() == (asked / name).read_text()


def test_one_cuda_is_meant_everywhere(build: Build) -> None:
    """By the base image, ONNX Runtime, PyTorch and TensorRT"""
    base = re.fullmatch(r"nvidia/cuda:((\d+)\.\d+)\.\d+-cudnn-runtime-ubuntu24\.04", base_image())
    assert base is not None
    minor, major = base.groups()

    onnxruntime = locked("bento-gpu.txt")["onnxruntime-gpu"]
    assert locked("gpu.txt")["onnxruntime-gpu"] == onnxruntime
    wanted = _resolved(f"onnxruntime-gpu[cuda,cudnn]=={onnxruntime}")
    torch = locked("torch.txt")
    for versions in (wanted, torch):
        assert versions["nvidia-cuda-runtime"].partition(".")[0] == major
        assert {name.rpartition("-cu")[2] for name in versions if re.search(r"-cu\d+$", name)} == {major}
        assert versions[f"nvidia-cudnn-cu{major}"].partition(".")[0] == "9"

    dockerfile = (build.bento("--arg", "variant=cuda-tensorrt") / "env/docker/Dockerfile").read_text()
    libraries = dict(re.findall(r"(libnv\w+(?:-\w+)?)=(\S+)", dockerfile))
    assert libraries.keys() == {"libnvinfer10", "libnvinfer-plugin10", "libnvonnxparsers10"}
    (version,) = set(libraries.values())
    assert version.endswith(f"+cuda{minor}")
    assert version.startswith(f"{BUILT_WITH[onnxruntime]}."), "ONNX Runtime has moved, and TensorRT has not"


def _resolved(requirement: str) -> dict[str, str]:
    """The versions that would be installed"""
    uv = [str(ROOT / ".venv/bin/uv"), "pip", "compile", "--quiet", "--python-platform", "linux", "--no-annotate", "-"]
    done = subprocess.run(uv, input=requirement, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", done.stdout, re.MULTILINE))


@pytest.mark.parametrize(
    "argument",
    [
        "base_image=debian\nRUN touch /pwned",
        "base_image=debian AS base-container",
        "python_version=3.11\nRUN touch /pwned",
        "python_version=3.11 --quiet",
        "variant=rocm",
    ],
)
def test_an_argument_that_would_say_more_builds_nothing(build: Build, argument: str) -> None:
    done = build.run(ROOT / ".venv/bin/bentoml", "build", "--output", "tag", "--arg", argument)
    assert done.returncode != 0
    assert "__tag__" not in done.stdout
    assert f"\n{argument.partition('=')[0]}\n" in done.stdout + done.stderr
    assert "Please provide correct arguments via --arg option" in done.stdout + done.stderr
