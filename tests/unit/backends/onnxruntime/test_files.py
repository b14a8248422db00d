from collections.abc import Callable
from pathlib import Path

import pytest

from runners.backends.onnxruntime.files import ModelFiles
from runners.errors import ConfigInvalid

Files = Callable[..., ModelFiles]


@pytest.mark.parametrize("place", ["m/1/ops.so", "m/ops.so", "m/1/deeper/ops.so"])
def test_a_library_is_found_in_the_directory_of_the_version_or_of_the_model(
    files: Files, tmp_path: Path, place: str
) -> None:
    of_model = files()
    path = tmp_path / "models" / place
    path.parent.mkdir(exist_ok=True)
    path.touch()
    name = "deeper/ops.so" if "deeper" in place else "ops.so"
    assert of_model.library(name, "library") == str(path)


def test_a_link_that_stays_in_the_directory_is_followed(files: Files, tmp_path: Path) -> None:
    of_model = files()
    (tmp_path / "models" / "m" / "data").mkdir()
    (tmp_path / "models" / "m" / "data" / "ops.so").touch()
    (tmp_path / "models" / "m" / "ops.so").symlink_to("data/ops.so")
    assert of_model.library("ops.so", "library") == str(tmp_path / "models" / "m" / "ops.so")


@pytest.mark.parametrize("name", ["../../out.so", "../../../models/out.so", "link.so", "folder/out.so", "ABSOLUTE"])
def test_a_library_outside_of_the_directory_is_refused(files: Files, tmp_path: Path, name: str) -> None:
    of_model = files()
    out = tmp_path / "models" / "out.so"
    out.touch()
    (of_model.directory / "link.so").symlink_to(out)
    (of_model.directory / "folder").symlink_to(out.parent)
    stated = str(of_model.directory / "inside.so") if name == "ABSOLUTE" else name
    (of_model.directory / "inside.so").touch()
    with pytest.raises(ConfigInvalid) as raised:
        of_model.library(stated, "op_library_filename")
    root = tmp_path / "models" / "m"
    expected = f"op_library_filename '{stated}' must be a file inside the directory of the model, '{root}'"
    assert str(raised.value) == expected


def test_a_library_that_is_not_there_is_named_with_where_it_was_looked_for(files: Files) -> None:
    with pytest.raises(ConfigInvalid, match=r"library 'ops\.so': not found in '.*/m/1' or '.*/m'"):
        files().library("ops.so", "library")


def test_output_goes_into_the_directory_of_the_version_or_below_that_of_the_operator(
    files: Files, tmp_path: Path
) -> None:
    assert files().output("cache/plan", "path") == str(tmp_path / "models" / "m" / "1" / "cache" / "plan")
    cached = files(engine_cache_directory=str(tmp_path / "cache")).output("plan", "path")
    assert cached == str(tmp_path / "cache" / "m" / "1" / "plan")
    assert Path(cached).parent.is_dir()


@pytest.mark.parametrize("name", ["", "/tmp/plan", "../plan", "a/../../plan", "link/plan"])
def test_output_elsewhere_is_refused(files: Files, tmp_path: Path, name: str) -> None:
    of_model = files()
    (of_model.directory / "link").symlink_to(tmp_path)
    with pytest.raises(ConfigInvalid, match="must be a path inside"):
        of_model.output(name, "path")


def test_profiles_need_a_directory_of_the_operators(files: Files, tmp_path: Path) -> None:
    assert files(profile_directory=str(tmp_path)).profile("m") == str(tmp_path / "m_1")
    with pytest.raises(ConfigInvalid, match=r"'kushi\.profile' of model 'm' needs a directory.*profile-directory=PATH"):
        files().profile("m")
