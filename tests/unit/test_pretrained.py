"""What `python -m kushi.pretrained` says of a listing that it cannot use, before anything is downloaded"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runners import ConfigInvalid
from runners.pretrained import Package, packages
from tests.serving import ROOT

if TYPE_CHECKING:
    from pathlib import Path

WHOLE = """
[a-package]
version = "1.0"
sha256 = "ab"
licence = "MIT"
[a-package.files]
"a/model.onnx" = "model/1/model.onnx"
"""


def test_a_listing_is_read(tmp_path: Path) -> None:
    listing = tmp_path / "models.toml"
    listing.write_text(WHOLE)
    assert packages(listing) == [Package("a-package", "1.0", "ab", "MIT", {"a/model.onnx": "model/1/model.onnx"})]


@pytest.mark.parametrize("absent", ["version", "sha256", "licence", "files"])
def test_each_part_is_needed(absent: str, tmp_path: Path) -> None:
    listing = tmp_path / "models.toml"
    listing.write_text(WHOLE.replace(absent, "other"))
    with pytest.raises(ConfigInvalid, match=f"models.toml: a package has no '{absent}'"):
        packages(listing)


def test_what_is_wrong_with_the_file_is_said(tmp_path: Path) -> None:
    listing = tmp_path / "models.toml"
    with pytest.raises(ConfigInvalid, match=r"there is no .*models\.toml: run this in a folder that has one"):
        packages(listing)
    listing.write_text("[")
    with pytest.raises(ConfigInvalid, match=r"models\.toml: .*Invalid"):
        packages(listing)


LISTINGS = [ROOT / "requirements/models.toml", *sorted(ROOT.glob("examples/*/models.toml"))]


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda path: path.parent.name)
def test_those_of_this_repository_are_whole(listing: Path) -> None:
    for package in packages(listing):
        assert len(package.sha256) == 64
        assert all(place.count("/") for place in package.files.values())
