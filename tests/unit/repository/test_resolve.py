import logging
from pathlib import Path

import pytest

from runners.errors import ConfigInvalid, KushiError, Unsupported
from runners.repository.layout import scan
from runners.repository.resolve import Resolved, resolve


def resolved(repository: Path, text: str | None, *versions: int, auto_complete: bool = True) -> Resolved:
    for version in versions:
        (repository / "m" / str(version)).mkdir(parents=True)
        (repository / "m" / str(version) / "model.onnx").write_bytes(b"")
    (repository / "m").mkdir(exist_ok=True)
    if text is not None:
        (repository / "m" / "config.pbtxt").write_text(text)
    (source,) = scan([repository]).models
    return resolve(source, auto_complete=auto_complete)


def test_a_model_without_configuration_is_filled_in(tmp_path: Path) -> None:
    found = resolved(tmp_path, None, 1, 2)
    assert (found.config.name, found.config.backend, found.versions) == ("m", "onnxruntime", (2,))


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("max_batch_sise: 1", ConfigInvalid, "config.pbtxt:1:1: ModelConfig has no field 'max_batch_sise'"),
        ("max_batch_size: -1", ConfigInvalid, "config.pbtxt: 'max_batch_size' must be non-negative value for m"),
        ("sequence_batching { }", Unsupported, "config.pbtxt: field 'sequence_batching' is not supported"),
        ('name: "other"', ConfigInvalid, "config.pbtxt: unexpected directory name 'm' for model 'other'"),
        ('platform: "ensemble"', ConfigInvalid, "config.pbtxt: ensemble scheduling must be set for ensemble m"),
    ],
)
def test_an_error_names_the_file(tmp_path: Path, text: str, error: type[KushiError], message: str) -> None:
    with pytest.raises(error) as raised:
        resolved(tmp_path, text, 1)
    assert str(raised.value).startswith(str(tmp_path / "m" / "config.pbtxt"))
    assert message in str(raised.value)


def test_an_error_without_a_configuration_names_the_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match=f"^{tmp_path / 'm'}: .*Invalid model name: Could not determine backend"):
        resolved(tmp_path, None)


@pytest.mark.parametrize("version", [1, 7])
def test_an_empty_version_directory_is_told_what_belongs_there(tmp_path: Path, version: int) -> None:
    expected = tmp_path / "m" / str(version)
    expected.mkdir(parents=True)
    (source,) = scan([tmp_path]).models
    with pytest.raises(ConfigInvalid) as raised:
        resolve(source, auto_complete=True)
    names = ("savedmodel", "graphdef", "plan", "onnx", "ort", "xml", "pt", "pt2", "py")
    others = ("checkpoint.tl", "model.gguf", "openvino_model.xml")
    files = " or ".join(f"'{file}'" for file in (*(f"model.{suffix}" for suffix in names), *others))
    assert f"no model file found in '{expected}', expected {files}: Invalid model name" in str(raised.value)


def test_a_model_without_a_version_is_tritons_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="at least one version must be available under the version policy of model"):
        resolved(tmp_path, 'backend: "onnxruntime"')


def test_a_version_that_is_asked_for_and_missing_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "runners"):
        found = resolved(tmp_path, "version_policy { specific { versions: [ 1, 4 ] } }", 1, 2)
    assert found.versions == (1,)
    assert "version 4 is specified for model 'm', but the version directory is not present" in caplog.text


def test_many_versions_that_are_missing_are_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    asked = ", ".join(map(str, range(1, 1001)))
    with caplog.at_level(logging.ERROR, "runners"):
        assert resolved(tmp_path, f"version_policy {{ specific {{ versions: [ {asked} ] }} }}", 1).versions == (1,)
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith("versions 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 989 more are specified for model 'm', but the")


def test_without_auto_completion_a_configuration_must_exist(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigInvalid, match=r"config\.pbtxt: not found, and .* leave out --disable-auto-complete-config$"
    ):
        resolved(tmp_path, None, 1, auto_complete=False)
