"""What is shipped of others: notices in the wheel, the bill of materials, and licences that stop a build"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from runners import __version__
from tests.packages.environments import BUILT_FOR_LINUX, SUPPLY, install, run, venv
from tests.serving import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.packages.conftest import Built

BILL = ("-m", "deploy.supply.sbom", "--python")


def bill_of(python: Path, folder: Path, *more: str | Path) -> dict[str, Any]:
    """The bill of an environment, which the schema allows: the command fails otherwise"""
    output = folder / "bill.json"
    run(SUPPLY / "python", *BILL, python, "--output", output, *more, cwd=ROOT)
    read: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    return read


def test_the_wheel_carries_current_notices_of_the_crates_in_it() -> None:
    run(SUPPLY / "python", "-m", "deploy.supply.notices", "--check", cwd=ROOT)
    folder = f"kushi_native-{__version__}.dist-info/licenses"
    archive = zipfile.ZipFile(BUILT_FOR_LINUX)
    for name, source in (
        ("LICENSE", "LICENSE"),
        ("THIRD_PARTY_LICENSES", "native/crates/bindings/THIRD_PARTY_LICENSES"),
    ):
        assert archive.read(f"{folder}/{name}") == (ROOT / source).read_bytes()
    notices = archive.read(f"{folder}/THIRD_PARTY_LICENSES").decode()
    for part in (
        "\ntokio ",
        "\npyo3 ",
        "\nort ",
        "Copyright (c) Tokio Contributors",
        "Apache License",
        "Simonas Kazlauskas",
    ):
        assert part in notices
    # they are compiled with, or tested with, and not in it
    for part in ("\nsyn ", "\nserde_derive ", "\nproptest ", "\nloom "):
        assert part not in notices


def test_the_bill_of_a_bento_has_its_packages_its_crates_and_those_of_the_image(bento: Built, tmp_path: Path) -> None:
    listed = tmp_path / "debian.txt"
    listed.write_text("libc6\t2.36-9+deb12u10\tamd64\nzlib1g\t1:1.2.13.dfsg-1\tamd64\n", encoding="utf-8")
    bill = bill_of(bento.python, tmp_path, "--debian", listed, "--distribution", "ubuntu-24.04")
    packages = {one["purl"] for one in bill["components"]}
    assert f"pkg:pypi/kushi-native@{__version__}" in packages
    assert {
        "pkg:deb/ubuntu/libc6@2.36-9%2Bdeb12u10?arch=amd64&distro=ubuntu-24.04",
        "pkg:deb/ubuntu/zlib1g@1:1.2.13.dfsg-1?arch=amd64&distro=ubuntu-24.04",
    } <= packages
    locked = (bento.folder / "env/python/requirements.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.split()[0].rstrip(";").lower().replace("==", "@") for line in locked if "==" in line}
    assert len(pinned) > 50
    # the lock has those for other systems and versions of Python, too
    installed = {one.removeprefix("pkg:pypi/") for one in packages if one.startswith("pkg:pypi/") and "#" not in one}
    assert installed - pinned == {f"kushi-native@{__version__}"}
    assert {one.partition("@")[0] for one in installed} > {"bentoml", "numpy", "onnxruntime", "pydantic", "uvloop"}
    models = {one["name"]: one for one in bill["components"] if one["type"] == "machine-learning-model"}
    assert models.keys() == {"detector", "orientation", "recogniser"}
    for name, model in models.items():
        served = (ROOT / "model_repository" / name / "1/model.onnx").read_bytes()
        assert model["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(served).hexdigest()}]
        assert model["licenses"] == [{"expression": "Apache-2.0"}]
        assert model["purl"].startswith("pkg:pypi/rapidocr@3.10.0#rapidocr/models/")
    crates = {one.removeprefix("pkg:cargo/") for one in packages if one.startswith("pkg:cargo/")}
    # the module says of each place where it may panic in which file of which crate that is
    module = zipfile.ZipFile(BUILT_FOR_LINUX).read("kushi_native/kushi_native.abi3.so").decode("latin-1")
    compiled = {"@".join(one) for one in re.findall(r"/registry/src/[^/]+/([\w-]+?)-(\d+\.\d+\.[\w.-]+)/", module)}
    assert len(compiled) > 10
    assert compiled <= crates
    assert {one.partition("@")[0] for one in crates}.isdisjoint({"syn", "loom", "proptest", "generator", "windows-sys"})
    # of the machine that it was written on
    assert not any(place in json.dumps(bill) for place in (str(ROOT), str(bento.home), "file:"))


def test_a_package_whose_licence_is_not_allowed_stops_the_bill(tmp_path: Path) -> None:
    python = venv(tmp_path / "venv")
    install(python, BUILT_FOR_LINUX)
    bill_of(python, tmp_path)
    (site,) = tmp_path.glob("venv/lib/*/site-packages")
    (site / "sneaky-1.0.dist-info").mkdir()
    metadata = "Metadata-Version: 2.4\nName: sneaky\nVersion: 1.0\nLicense-Expression: MIT AND GPL-3.0-only\n"
    (site / "sneaky-1.0.dist-info" / "METADATA").write_text(metadata, encoding="utf-8")
    command: list[str | Path] = [SUPPLY / "python", *BILL, python, "--output", tmp_path / "none.json"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "sneaky: MIT AND GPL-3.0-only is not on the list of allowed licences (GPL-3.0-only)\n"
    assert not (tmp_path / "none.json").exists()


@pytest.mark.parametrize(
    ("expression", "licences"),
    [
        ("MIT OR Apache-2.0", ["Apache-2.0"]),
        ("MIT/Apache-2.0", ["Apache-2.0"]),
        ("GPL-2.0-only OR BSD-3-Clause", ["BSD-3-Clause"]),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", ["Apache-2.0", "Unicode-3.0"]),
        ("(GPL-3.0-only AND MIT) OR ISC", ["ISC"]),
    ],
)
def test_of_several_licences_one_that_is_allowed_is_chosen(expression: str, licences: list[str]) -> None:
    program = f"from deploy.supply.licences import chosen; print(sorted(chosen({expression!r})))"
    assert run(SUPPLY / "python", "-c", program, cwd=ROOT) == f"{licences}\n"


@pytest.mark.parametrize("stated", [["GPL-3.0-only"], ["MIT", "AGPL-3.0-only"], [], ["Proprietary, ask us"]])
def test_what_is_not_allowed_or_not_known_is_refused(stated: list[str]) -> None:
    program = (
        f"from deploy.supply.licences import refused; print(len(refused([('fine', ['MIT']), ('other', {stated})])))"
    )
    assert run(SUPPLY / "python", "-c", program, cwd=ROOT) == "1\n"
