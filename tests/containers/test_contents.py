"""What the image carries, and what it does not: its size, its layers above the base, its environment."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest

from tests.containers.docker import docker
from tests.serving import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.containers.conftest import Bases, Build

pytestmark = pytest.mark.timeout(1200)

MOST_BYTES = 475_000_000
TOOLS = re.compile(r"(.*-)?(cc|c\+\+|gcc|g\+\+|clang|ld|make|cmake|ninja|cargo|rustc|maturin|zig|git)(-\d+)?")
CACHES = re.compile(r"(root|home/\w+)/\.cache/.|var/cache/apt/.+\.deb|var/lib/apt/lists/.+Packages")
SECRETS = re.compile(r"(.*\.(pem|crt|key|p12|pfx|env)|id_(rsa|ed25519)|\.netrc|\.npmrc|\.pypirc|pip\.conf|\.env)")
PACKAGES = "app/.venv/lib/python3.11/site-packages/"
# the authorities that Python's clients trust everywhere, and what tornado tests itself with
PUBLIC = {PACKAGES + name for name in ("certifi/cacert.pem", "tornado/test/test.crt", "tornado/test/test.key")}


def inspected(image: str) -> Any:  # noqa: ANN401 - a JSON document
    return json.loads(docker("inspect", image))[0]


@pytest.fixture(scope="module")
def files(image: str, bases: Bases, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Everything that its own layers have written, with its size"""
    saved = tmp_path_factory.mktemp("image") / "image.tar"
    docker("save", "--output", str(saved), image, timeout=300)
    own = len(inspected(image)["RootFS"]["Layers"]) - len(inspected(bases.full)["RootFS"]["Layers"])
    found: dict[str, int] = {}
    with tarfile.open(saved) as archive:
        manifest = archive.extractfile("manifest.json")
        assert manifest is not None
        layers = json.load(manifest)[0]["Layers"]
        assert own > 5
        for layer in layers[-own:]:
            with tarfile.open(fileobj=archive.extractfile(layer)) as content:
                found |= {member.name.removeprefix("./"): member.size for member in content if not member.isdir()}
    saved.unlink()
    assert "home/bentoml/bento/src/service.py" in found
    return found


def test_it_is_small(image: str) -> None:
    assert inspected(image)["Size"] <= MOST_BYTES


def test_it_has_no_tools_of_builds_no_caches_and_no_secrets(files: dict[str, int]) -> None:
    binaries = {name for name in files if PurePosixPath(name).parent.name in {"bin", "sbin"}}
    assert binaries
    assert not {name for name in binaries if TOOLS.fullmatch(PurePosixPath(name).name)}
    # uv notes which Python it has found
    assert sum(size for name, size in files.items() if CACHES.match(name)) < 10_000
    assert not {name for name in files if SECRETS.fullmatch(PurePosixPath(name).name)} - PUBLIC
    assert not {name for name in files if "/.git/" in name}
    assert not {name for name in files if "/site-packages/pip/" in name or name.endswith("/bin/uv")}


def test_it_has_the_packages_of_the_lock_and_no_others(image: str) -> None:
    script = "import importlib.metadata as m; print(*sorted(f'{d.name}=={d.version}' for d in m.distributions()))"
    python = ["--entrypoint", "/app/.venv/bin/python", image, "-I", "-c", script]
    installed = {name.lower().replace("_", "-") for name in docker("run", "--rm", *python).split()}
    lock = (ROOT / "requirements/bento-cpu.txt").read_text()
    entries = re.findall(r"^(\S+==\S+)( ; .*)? \\$", lock, re.MULTILINE)
    locked = {name.replace("_", "-").replace(".", "-") for name, _ in entries}
    native = {name for name in installed if name.startswith("kushi-native==")}
    assert len(native) == 1
    assert {name.replace(".", "-") for name in installed - native} <= locked
    # others are for other systems
    assert {name.replace("_", "-").replace(".", "-") for name, marker in entries if not marker} <= {
        name.replace(".", "-") for name in installed
    }


def test_its_environment_is_known(image: str, bases: Bases) -> None:
    def names(of: str) -> set[str]:
        return {each.partition("=")[0] for each in inspected(of)["Config"]["Env"]}

    assert names(image) - names(bases.full) == {
        *("BENTOML_CONTAINERIZED", "BENTOML_DO_NOT_TRACK", "BENTOML_HF_CACHE_DIR", "BENTOML_HOME", "BENTO_PATH"),
        *("LANG", "LC_ALL", "PYTHONIOENCODING", "PYTHONUNBUFFERED"),
        *("UV_COMPILE_BYTECODE", "UV_NO_PROGRESS", "VIRTUAL_ENV"),
    }
    assert inspected(image)["Config"]["User"] == "bentoml"


def test_a_bare_base_gets_python_and_uv(build: Build, bases: Bases) -> None:
    bento = build.bento("--arg", "variant=cpu", "--arg", f"base_image={bases.bare}", "--arg", "python_version=3.11")
    steps = re.findall(r"^RUN .*apt-get .*$", (bento / "env/docker/Dockerfile").read_text(), re.MULTILINE)
    assert len(steps) == 1
    name = "kushi-test:bare"
    try:
        text = f"FROM {bases.bare}\n{steps[0]}\nRUN uv --version && python3 --version\n"
        command = ["docker", "build", "--tag", name, "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert docker("run", "--rm", name, "uv", "--version").startswith("uv 0.13.")
    finally:
        subprocess.run(["docker", "rmi", "--force", name], capture_output=True, timeout=60, check=False)


def test_a_package_that_is_not_the_locked_one_is_refused(build: Build, bases: Bases, tmp_path: Path) -> None:
    bento = build.bento("--arg", "variant=cpu", "--arg", f"base_image={bases.full}", "--arg", "python_version=3.11")
    listed = bento / "env/python/requirements.txt"
    text = listed.read_text()
    start = text.index("uvloop==")
    end = text.index("\n\n", start)
    listed.write_text(text[:start] + re.sub("sha256:[0-9a-f]{8}", "sha256:00000000", text[start:end]) + text[end:])
    tag = f"{bento.parent.name}:{bento.name}"
    done = build.run(ROOT / ".venv/bin/bentoml", "containerize", tag, "--image-tag", "kushi-test:forged")
    assert done.returncode != 0
    assert "Hash mismatch for `uvloop" in done.stdout + done.stderr
