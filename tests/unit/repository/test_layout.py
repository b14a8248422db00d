import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from runners.errors import ConfigInvalid
from runners.repository.layout import check_model_name, model_file, scan


def model(repository: Path, name: str, *versions: str) -> Path:
    for version in versions:
        (repository / name / version).mkdir(parents=True)
    (repository / name).mkdir(exist_ok=True, parents=True)
    return repository / name


def test_every_directory_is_a_model_and_files_beside_them_are_not(tmp_path: Path) -> None:
    model(tmp_path, "b", "1")
    model(tmp_path, "a", "1")
    (tmp_path / "README.md").write_text("")
    assert [found.name for found in scan([tmp_path]).models] == ["a", "b"]


def test_hidden_directories_are_no_models(tmp_path: Path) -> None:
    model(tmp_path, ".git", "1")
    assert scan([tmp_path]).models == ()


def test_versions_are_the_positive_numbers_in_numeric_order(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model(tmp_path, "m", "10", "9", "0", "01", "1a", "-1", "latest", "warmup", "configs", ".cache", "9" * 30)
    with caplog.at_level(logging.WARNING, "runners"):
        (found,) = scan([tmp_path]).models
    assert list(found.versions) == [9, 10]
    text = caplog.text
    assert "ignore version directory '01' of model 'm' which contains leading zeros in its directory name" in text
    assert "ignore version directory '1a' of model 'm' which fails to convert to integral number" in text
    assert "'warmup'" not in text


def test_a_file_named_as_a_number_is_no_version(tmp_path: Path) -> None:
    model(tmp_path, "m", "1")
    (tmp_path / "m" / "2").write_text("")
    assert list(scan([tmp_path]).models[0].versions) == [1]


def test_the_configuration_file_is_optional(tmp_path: Path) -> None:
    model(tmp_path, "without", "1")
    (model(tmp_path, "with", "1") / "config.pbtxt").write_text("")
    found = {m.name: m for m in scan([tmp_path]).models}
    assert found["with"].stated_in == tmp_path / "with" / "config.pbtxt"
    assert found["without"].config_file is None
    assert found["without"].stated_in == tmp_path / "without"


def test_a_name_in_two_repositories_is_refused_with_both_paths(tmp_path: Path) -> None:
    for repository in ("one", "two"):
        model(tmp_path / repository, "m", "1")
    model(tmp_path / "two", "other", "1")
    found = scan([tmp_path / "one", tmp_path / "two"])
    assert [m.name for m in found.models] == ["other"]
    assert str(tmp_path / "one" / "m") in found.refused["m"]
    assert str(tmp_path / "two" / "m") in found.refused["m"]


def test_a_name_that_is_no_text_is_refused_and_the_others_are_served(tmp_path: Path) -> None:
    model(tmp_path, os.fsdecode(b"bad\xff"), "1")
    model(tmp_path, "good", "1")
    found = scan([tmp_path])
    assert [m.name for m in found.models] == ["good"]
    assert found.refused == {r"bad\udcff": r"invalid model name 'bad\udcff', expected printable UTF-8 text"}


def test_the_same_repository_twice_is_one(tmp_path: Path) -> None:
    model(tmp_path, "m", "1")
    assert len(scan([tmp_path, tmp_path]).models) == 1


@pytest.mark.parametrize("name", ["net.v2.onnx", "net.v2.ort"])
def test_a_bare_file_is_a_model_named_as_its_stem(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"")
    (found,) = scan([path]).models
    assert (found.name, dict(found.versions)) == ("net.v2", {1: tmp_path})
    assert (found.config.backend, found.config.default_model_filename) == ("onnxruntime", name)


def test_a_bare_file_that_is_no_model_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "net.pb"
    path.write_bytes(b"")
    with pytest.raises(ConfigInvalid, match=r"net\.pb' is neither a model repository nor a model file"):
        scan([path])


def test_a_missing_repository_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match=r"model repository '.*nowhere' not found"):
        scan([tmp_path / "nowhere"])


@pytest.mark.parametrize("name", ["net.onnx", "net.ort"])
def test_a_missing_model_file_is_called_that(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigInvalid, match=f"^model file '{tmp_path}/{name}' not found"):
        scan([tmp_path / name])


def test_what_is_neither_file_nor_directory_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    for path in (tmp_path / "pipe.onnx", Path("/dev/null")):
        with pytest.raises(ConfigInvalid, match=f"'{path}' is neither a model repository nor a model file"):
            scan([path])


def test_a_repository_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(ConfigInvalid, match=f"^'{tmp_path}' cannot be read: Permission denied$"):
        scan([tmp_path])


def test_a_model_that_cannot_be_read_is_refused_and_the_others_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    listed = Path.iterdir

    def refuse(path: Path) -> Iterator[Path]:
        if path.name == "a":
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    # for all users, root among them
    monkeypatch.setattr(Path, "iterdir", refuse)
    monkeypatch.setattr("runners.repository.layout._is_model", lambda _: False)
    found = scan([tmp_path])
    assert [model.name for model in found.models] == ["b"]
    assert found.refused == {"a": f"{tmp_path}/a: Permission denied"}


def test_an_empty_repository_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "net.onnx").write_bytes(b"")
    with caplog.at_level(logging.WARNING, "runners"):
        assert scan([tmp_path]).models == ()
    assert f"no model found in '{tmp_path}', expected directories as in MODEL/1/model.onnx" in caplog.text


def test_a_model_in_place_of_its_repository_gets_the_right_path(tmp_path: Path) -> None:
    configured = model(tmp_path, "configured", "1")
    (configured / "config.pbtxt").write_text("")
    bare = model(tmp_path, "bare", "1", "2")
    (bare / "2" / "model.onnx").write_bytes(b"")
    for path in (configured, bare):
        with pytest.raises(ConfigInvalid) as raised:
            scan([path])
        assert str(raised.value) == f"'{path}' looks like a model, expected its model repository: '{tmp_path}'"


def test_a_model_in_place_of_its_repository_is_known_from_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (model(tmp_path, "m", "1") / "config.pbtxt").write_text("")
    monkeypatch.chdir(tmp_path / "m")
    with pytest.raises(ConfigInvalid, match=f"^'.' looks like a model, expected its model repository: '{tmp_path}'$"):
        scan([Path()])


def test_models_may_have_numbers_for_names(tmp_path: Path) -> None:
    (model(tmp_path, "1", "1") / "1" / "model.onnx").write_bytes(b"")
    model(tmp_path, "7")
    (tmp_path / "config.pbtxt").write_text("")
    assert [found.name for found in scan([tmp_path]).models] == ["1", "7"]


@pytest.mark.parametrize("name", ["...", "model..1", "a b", "modèle"])
def test_an_unusual_name_is_allowed(name: str) -> None:
    check_model_name(name)


@pytest.mark.parametrize("name", ["..", " .. ", "a/b", "/"])
def test_a_name_that_is_a_path_is_refused(name: str) -> None:
    with pytest.raises(ConfigInvalid, match="must not contain path traversal characters"):
        check_model_name(name)


@pytest.mark.parametrize("name", ["", "  "])
def test_a_blank_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigInvalid, match="Model name cannot be empty"):
        check_model_name(name)


def test_a_model_is_a_file_or_where_its_backend_says_so_a_directory_that_holds_one(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(b"")
    (tmp_path / "b.onnx").mkdir()
    (tmp_path / "b.onnx" / "model.onnx").write_bytes(b"")
    assert model_file(tmp_path, "a.onnx", inside="model.onnx") == tmp_path / "a.onnx"
    assert model_file(tmp_path, "b.onnx", inside="model.onnx") == tmp_path / "b.onnx" / "model.onnx"
    with pytest.raises(IsADirectoryError):
        model_file(tmp_path, "b.onnx")


@pytest.mark.parametrize("name", ["../m.onnx", "a/../../m.onnx", "/etc/passwd", "", "..", "a\0b"])
def test_a_file_name_that_leaves_the_version_directory_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigInvalid, match="must be a path inside the version directory"):
        model_file(tmp_path, name)


def test_a_missing_model_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    with pytest.raises(ConfigInvalid, match=r"unable to find '.*model\.onnx'"):
        model_file(tmp_path, "model.onnx")
    with pytest.raises(ConfigInvalid, match=r"unable to find '.*dir/model\.onnx'"):
        model_file(tmp_path, "dir", inside="model.onnx")
