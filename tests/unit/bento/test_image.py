"""The image of a service: which arguments it takes, and that what goes into it is what the project says"""

from __future__ import annotations

import base64
import hashlib
import re
import tomllib
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from bentoml.exceptions import BentoMLException, InvalidArgument
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from runners import __version__
from runners.bento import image
from runners.bento.image import _NAMES_KUSHI, _UV, BuildArguments
from runners.bento.own_wheels import own_wheels
from tests.bentoml_internals import ARGUMENTS
from tests.serving import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ASKED: dict[str, Any] = yaml.safe_load((ROOT / "bentofile.yaml").read_text())
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = {"cpu": "onnxruntime", "gpu": "onnxruntime-gpu"}


@pytest.fixture
def given() -> Iterator[dict[str, str]]:
    """The arguments of `bentoml build`"""
    arguments: dict[str, str] = {}
    ARGUMENTS.set(arguments)
    yield arguments
    ARGUMENTS.reset()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("base_image", value)
            for value in [
                "debian\nRUN id",
                "debian\n",
                "debian\r\nRUN id",
                "debian AS x",
                "debian\tx",
                "--platform=x debian",
                'debian"',
                "debian'",
                "debian;id",
                "debian$X",
                "${X}",
                "debian`id`",
                "debian\\",
                "debian#x",
                "",
                "d" * 256,
            ]
        ),
        *(("python_version", value) for value in ["3.11\nRUN id", "3.11\n", "3.11 ", "3.11;id", "3.10", "3", "'3.11'"]),
        *(("variant", value) for value in ["gpu", "cpu\nRUN id", "cpu ", ""]),
    ],
)
def test_an_argument_that_would_say_more_in_a_dockerfile_is_refused(
    given: dict[str, str], name: str, value: str
) -> None:
    given[name] = value
    with pytest.raises(InvalidArgument, match=rf"via --arg option: 1 validation error for BuildArguments\n{name}\n"):
        image()


@pytest.mark.parametrize("base", ["debian:bookworm-slim", ASKED["args"]["base_image"], "host:5000/a/b_c@sha256:0a1b"])
def test_names_of_images_are_taken(given: dict[str, str], base: str) -> None:
    given["base_image"] = base
    assert image().base_image == base


def test_bentofile_asks_for_what_there_is() -> None:
    assert BuildArguments(**ASKED["args"]).variant == "cuda"
    assert ASKED["args"].keys() == BuildArguments.model_fields.keys()


@pytest.mark.parametrize(("variant", "package"), [("cpu", "onnxruntime"), ("cuda", "onnxruntime-gpu")])
def test_a_service_without_a_lock_gets_an_onnxruntime(given: dict[str, str], variant: str, package: str) -> None:
    given["variant"] = variant
    (wanted,) = image().python_requirements.split()
    extra = PROJECT["project"]["optional-dependencies"]["cpu" if variant == "cpu" else "gpu"]
    assert Requirement(wanted).name == package
    assert [wanted] == extra


def test_a_lock_that_the_bento_does_not_hold_builds_nothing(given: dict[str, str], tmp_path: Path) -> None:
    made = image(lock="requirements/mine-{runtime}.txt")
    with pytest.raises(BentoMLException, match=re.escape("'requirements/mine-cpu.txt' is not in the Bento")):
        made.freeze(tmp_path, [])


def test_the_image_of_a_lock_has_its_packages_and_the_wheels(given: dict[str, str], tmp_path: Path) -> None:
    given["variant"] = "cuda-tensorrt"
    lock, wheel = tmp_path / "src" / "mine-gpu.txt", tmp_path / "src" / "wheels" / "a-1-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    wheel.touch()
    lock.write_text("numpy==2.0.0 --hash=sha256:0a\n")
    made = image(lock="mine-{runtime}.txt")
    made.freeze(tmp_path, [])
    assert "numpy==2.0.0 --hash=sha256:0a" in made.python_requirements
    assert any("libnvinfer" in command for command in made.commands)
    assert "numpy==2.0.0" in (tmp_path / "env/python/requirements.txt").read_text()
    assert not (tmp_path / "env/python/requirements.in").exists()


@pytest.mark.parametrize("runtime", LOCKS)
def test_the_lock_holds_what_the_project_asks_for_with_hashes(runtime: str) -> None:
    text = (ROOT / f"requirements/bento-{runtime}.txt").read_text()
    locked = {name: (version, hashes) for name, version, hashes in _entries(text)}
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *extras[runtime], *extras["bento"], *PROJECT["dependency-groups"]["service"]]
    wanted = [Requirement(each) for each in asked if not each.startswith("kushi-native")]
    assert all(locked[canonicalize_name(each.name)][0] in each.specifier for each in wanted)
    assert all("--hash=sha256:" in hashes for _, hashes in locked.values())
    assert locked.keys() & {*LOCKS.values()} == {LOCKS[runtime]}
    unused = re.findall(r"^[\w-]+", (ROOT / "requirements/unused.in").read_text(), re.MULTILINE)
    assert unused
    assert not locked.keys() & {*unused}
    assert "index" not in text


def test_the_versions_are_those_that_are_tested() -> None:
    """
    Of which there may be several, for several versions of Python. BentoML adds its own, the one that builds, without a
    hash: it has to be the same.
    """
    tested = {entry[:2] for entry in _entries((ROOT / "requirements/dev.txt").read_text())}
    for runtime in LOCKS:
        packed = {entry[:2] for entry in _entries((ROOT / f"requirements/bento-{runtime}.txt").read_text())}
        assert {name for name, _ in packed - tested} <= {"onnxruntime-gpu"}


def test_bentofile_names_the_wheel_of_this_version() -> None:
    (path,) = ASKED["python"]["packages"]
    name, version, _, _ = parse_wheel_filename(path.removeprefix("./wheels/"))
    assert (name, str(version)) == ("kushi-native", __version__)


def _entries(lock: str) -> list[tuple[str, str, str]]:
    """Name, version and hashes of each package"""
    return re.findall(r"^([\w.-]+)==(\S+)[^\n]*((?:\n +--hash=\S+(?: \\)?)+)", lock, re.MULTILINE)


def test_the_uv_of_the_image_is_the_locked_one_with_a_hash_of_its_lock() -> None:
    requirement, _, digest = _UV.partition(" --hash=sha256:")
    (locked,) = re.findall(
        rf"^{re.escape(requirement)} (.*(?:\n .*)*)", (ROOT / "requirements/bootstrap.txt").read_text(), re.MULTILINE
    )
    assert len(digest) == 64
    assert f"--hash=sha256:{digest}" in locked


# --- Kushi itself ---


@pytest.mark.parametrize(
    ("line", "is_named"),
    [
        ("./wheels/kushi-0.1.0-py3-none-any.whl", True),
        ("kushi[bento,cpu]==0.1.0", True),
        ("kushi", True),
        ("kushi @ file:///a.whl", True),
        ("./wheels/kushi_native-0.1.0-cp311-abi3-manylinux_2_28_x86_64.whl", False),
        ("kushi-native==0.1.0", False),
        ("kushi-extras", False),
        ("pillow", False),
    ],
)
def test_a_bentofile_may_name_another_kushi(line: str, is_named: bool) -> None:
    assert (_NAMES_KUSHI.search(f"numpy\n{line}\n") is not None) == is_named


def test_a_checkout_is_packed_as_what_it_would_be_installed_from(tmp_path: Path) -> None:
    wheels, others = own_wheels(tmp_path)[:2], own_wheels(tmp_path)[2:]
    assert {Requirement(each).name for each in others} == {"bentoml", "httptools", "uvloop"}
    assert [name.split("-")[0] for name in wheels] == ["./wheels/kushi", "./wheels/kushi_native"]
    assert {f"./wheels/{path.name}" for path in (tmp_path / "wheels").iterdir()} == {*wheels}
    with zipfile.ZipFile(tmp_path / wheels[0]) as archive:
        assert {"kushi/bento/own_wheels.py", "kushi/new_service/reader_files/service.py"} <= {*archive.namelist()}
    with zipfile.ZipFile(tmp_path / wheels[1]) as archive:
        (record,) = (name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
        rows = [line.split(",") for line in archive.read(record).decode().splitlines()]
        assert {row[0] for row in rows} == {*archive.namelist()}
        for name, digest, size in rows:
            if name != record:
                data = archive.read(name)
                expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                assert (digest, size) == (f"sha256={expected}", str(len(data))), name
