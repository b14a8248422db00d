"""
The image that `bentoml containerize` makes of a service: which base it stands on, and what runs its models.

    @service(name="Reader", image=image())

The arguments of `bentoml build` choose: `bentoml build --arg variant=cpu --arg base_image=debian:bookworm-slim`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import attrs
import bentoml
from bentoml.exceptions import BentoMLException
from bentoml.images import Image
from pydantic import BaseModel, StringConstraints

from .own_wheels import FOLDER, own_wheels

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["BuildArguments", "image"]

Variant = Literal["cpu", "cuda", "cuda-tensorrt"]

# What stands in a Dockerfile must not be able to say more there than it is asked for.
_Reference = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}$")]
_Version = Annotated[str, StringConstraints(pattern=r"^3\.1[1-9]$")]

_RUNTIMES: Final = {"cpu": "onnxruntime>=1.31,<1.32", "gpu": "onnxruntime-gpu>=1.31,<1.32"}
# It checks the hashes of all others. This is its wheel for x86-64 Linux, like that of kushi_native.
_UV: Final = "uv==0.13.8 --hash=sha256:e18a57b8b352eb7c8feb317b9f6f533c8f0ad9673fd6cf34bbe3cf1a9f6a8984"
# Python and uv, where the base has none: BentoML makes the environment of the service with them.
_PYTHON: Final = (
    "command -v python3 >/dev/null && command -v uv >/dev/null || "
    "{ apt-get update && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv "
    "&& python3 -m venv /opt/uv "
    f"&& echo '{_UV}' > /opt/uv/uv.txt && /opt/uv/bin/pip install --no-cache-dir --require-hashes -r /opt/uv/uv.txt "
    "&& ln -s /opt/uv/bin/uv /usr/local/bin/uv && rm -rf /var/lib/apt/lists/*; }"
)
# TensorRT's libraries are no wheels: NVIDIA's images have its package archive set up. It has them for several versions
# of CUDA, hence the exact one: what onnxruntime-gpu 1.31.1 was built with, which links libnvinfer.so.10.
_TENSORRT_VERSION: Final = "10.14.1.48-1+cuda13.0"
_TENSORRT: Final = (
    "apt-get update && apt-get install -y --no-install-recommends "
    + " ".join(f"{name}={_TENSORRT_VERSION}" for name in ("libnvinfer10", "libnvinfer-plugin10", "libnvonnxparsers10"))
    + " && rm -rf /var/lib/apt/lists/*"
)
# The Python module of those libraries, and what speaks with CUDA's driver.
_TENSORRT_PACKAGES: Final = ("tensorrt-cu13-bindings==10.14.*", "cuda-bindings>=13,<14")
# The only way to tell the uv of BentoML's Dockerfile: what is not in the lock is not installed.
_LOCKED: Final = "mkdir -p /etc/uv && printf '[pip]\\nno-deps = true\\n' > /etc/uv/uv.toml"

_NAMES_KUSHI: Final = re.compile(r"^(\S*/)?kushi(-\d|\.git|\.tar|[^\w.-]|$)", re.MULTILINE | re.IGNORECASE)


class BuildArguments(BaseModel):
    """What `bentoml build --arg NAME=VALUE` and `args:` of bentofile.yaml may say"""

    variant: Variant = "cpu"
    base_image: _Reference = "debian:bookworm-slim"
    python_version: _Version = "3.11"


@attrs.define(slots=False)
class _OwnImage(Image):
    """It has Kushi as it is installed here, unless bentofile.yaml names it"""

    def freeze(self, bento_fs: Path, envs: list[Any], platform_: str | None = None) -> Any:  # noqa: ANN401 - for BentoML
        # in a checkout the package has another name, and a service that imports it has it beside itself
        if __package__.startswith("kushi.") and not _NAMES_KUSHI.search(self.python_requirements):
            self.python_requirements += "".join(f"{line}\n" for line in own_wheels(bento_fs / "src"))
            if not self.lock_python_packages:
                # BentoML does so where it locks
                self.build_include(FOLDER)
        return super().freeze(bento_fs, envs, platform_)


@attrs.define(slots=False)
class _LockedImage(Image):
    """Its packages are those of a file of the Bento, which is read when the Bento is built and not when it is served"""

    lock: str = ""

    def freeze(self, bento_fs: Path, envs: list[Any], platform_: str | None = None) -> Any:  # noqa: ANN401 - for BentoML
        sources = bento_fs / "src"
        lock = sources / self.lock
        if not lock.is_file():
            raise BentoMLException(f"'{self.lock}' is not in the Bento, expected it under `include` of bentofile.yaml")
        self.python_packages(lock.read_text())
        self.lock_python_packages = False
        if (sources / FOLDER).is_dir():
            # BentoML does so where it locks
            self.build_include(FOLDER)
        info = super().freeze(bento_fs, envs, platform_)
        # the lock once more, which only BentoML's own locking reads: two layers of the image would have it
        (bento_fs / "env" / "python" / "requirements.in").unlink(missing_ok=True)
        return info


def image(*, lock: str | None = None) -> Image:
    """
    The image for the arguments of this build.

    lock: a file of the Bento with the hashes of all packages that the image shall have, besides the wheels that
        bentofile.yaml names; `{runtime}` in it stands for `cpu` or `gpu`. Without it, BentoML locks what bentofile.yaml
        names, Kushi as it is installed here and an ONNX Runtime, when it builds the Bento, and no hashes.
    """
    asked = bentoml.use_arguments(BuildArguments)
    runtime = "cpu" if asked.variant == "cpu" else "gpu"
    chosen = {"base_image": asked.base_image, "distro": "custom", "python_version": asked.python_version}
    made = _LockedImage(**chosen, lock=lock.format(runtime=runtime)) if lock else _OwnImage(**chosen)
    made.run(_PYTHON)
    if asked.variant == "cuda-tensorrt":
        made.run(_TENSORRT)
    if lock:
        return made.run(_LOCKED)
    return made.python_packages(_RUNTIMES[runtime], *(_TENSORRT_PACKAGES if asked.variant == "cuda-tensorrt" else ()))
