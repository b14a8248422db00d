from pathlib import Path

import pytest

from runners.errors import ConfigInvalid
from runners.repository.layout import ModelSource
from runners.repository.messages import ModelInstanceGroup
from runners.repository.normalize import fill_backend, fill_defaults, fill_instance_groups
from tests.unit.text import config


def source(tmp_path: Path, name: str = "m", file: str | None = None) -> ModelSource:
    directory = tmp_path / name / "1"
    directory.mkdir(parents=True)
    if file:
        (directory / file).write_bytes(b"")
    return ModelSource(name, directory.parent, {1: directory})


@pytest.mark.parametrize(
    "text",
    ['backend: "onnxruntime"', 'platform: "onnxruntime_onnx"', 'default_model_filename: "model.onnx"'],
)
def test_any_one_of_backend_platform_and_file_name_gives_the_others(tmp_path: Path, text: str) -> None:
    filled = fill_backend(source(tmp_path), config(text))
    assert (filled.name, filled.backend) == ("m", "onnxruntime")
    assert (filled.platform, filled.default_model_filename) == ("onnxruntime_onnx", "model.onnx")


def test_the_content_of_the_version_directory_tells_the_backend(tmp_path: Path) -> None:
    assert fill_backend(source(tmp_path, file="model.onnx"), config("")).backend == "onnxruntime"


@pytest.mark.parametrize(
    ("file", "backend"),
    [("model.plan", "tensorrt"), ("model.xml", "openvino"), ("model.pt", "pytorch"), ("model.py", "python")],
)
def test_other_backends_are_recognised_so_that_they_can_be_refused_by_name(
    tmp_path: Path, file: str, backend: str
) -> None:
    assert fill_backend(source(tmp_path, file=file), config("")).backend == backend


@pytest.mark.parametrize(
    ("platform", "backend"),
    [
        ("tensorflow_savedmodel", "tensorflow"),
        ("tensorflow_graphdef", "tensorflow"),
        ("python", "python"),
        ("fil", "fil"),
    ],
)
def test_a_platform_names_the_backend_that_is_missing(tmp_path: Path, platform: str, backend: str) -> None:
    assert fill_backend(source(tmp_path), config(f'platform: "{platform}"')).backend == backend


@pytest.mark.parametrize("file", ["model.pt", "model.pt2"])
@pytest.mark.parametrize("text", ["", 'backend: "pytorch"', 'platform: "pytorch_libtorch"'])
def test_the_file_of_a_pytorch_model_is_the_one_that_is_there(tmp_path: Path, file: str, text: str) -> None:
    filled = fill_backend(source(tmp_path, file=file), config(text))
    assert (filled.backend, filled.platform, filled.default_model_filename) == ("pytorch", "pytorch_libtorch", file)


@pytest.mark.parametrize(
    ("stated", "there", "expected"),
    [
        ("", "xgboost.json", "xgboost.json"),
        ("", "model.txt", "model.txt"),
        ("", "", "checkpoint.tl"),
        ("lightgbm", "xgboost.json", "model.txt"),
        ("xgboost_ubj", "xgboost.ubj", "xgboost.ubj"),
        ("nonsense", "xgboost.ubj", "xgboost.ubj"),
    ],
)
def test_a_parameter_may_say_which_file_a_model_has(tmp_path: Path, stated: str, there: str, expected: str) -> None:
    text = f'parameters {{ key: "model_type" value {{ string_value: "{stated}" }} }}' if stated else ""
    found = source(tmp_path, file=there) if there else source(tmp_path)
    assert fill_backend(found, config(f'backend: "fil" {text}')).default_model_filename == expected


def test_a_file_name_of_its_own_is_kept(tmp_path: Path) -> None:
    text = 'backend: "onnxruntime" default_model_filename: "net.onnx"'
    assert fill_backend(source(tmp_path), config(text)).default_model_filename == "net.onnx"


def test_a_name_ending_in_a_backend_gives_it(tmp_path: Path) -> None:
    assert fill_backend(source(tmp_path, "m.identity"), config("")).backend == "identity"


def test_nothing_to_go_by_is_tritons_error(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigInvalid,
        match=r"found in '.*/m/1', expected .* or 'model\.onnx' or .*: Invalid model name: Could not determine backend",
    ):
        fill_backend(source(tmp_path), config(""))


def test_what_the_user_wrote_is_not_changed(tmp_path: Path) -> None:
    written = config("dynamic_batching { } max_batch_size: 4")
    fill_defaults(fill_instance_groups(fill_backend(source(tmp_path, file="model.onnx"), written)))
    assert written == config("dynamic_batching { } max_batch_size: 4")


def test_the_latest_version_is_the_default_policy() -> None:
    assert fill_defaults(config("")).version_policy.latest.num_versions == 1
    assert fill_defaults(config("version_policy { all { } }")).version_policy.HasField("all")


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("max_batch_size: 8 dynamic_batching { }", [8]),
        ("max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 4 ] }", [4]),
        ("max_batch_size: 0 dynamic_batching { }", []),
    ],
)
def test_the_maximum_is_preferred_where_nothing_is_said(text: str, sizes: list[int]) -> None:
    assert list(fill_defaults(config(text)).dynamic_batching.preferred_batch_size) == sizes


def test_no_scheduler_is_made_up() -> None:
    assert not fill_defaults(config("max_batch_size: 8")).HasField("dynamic_batching")


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("", [("m", 2)]),
        ("instance_group { }", [("m_0", 2)]),
        ("instance_group { count: 3 } instance_group { name: 'mine' kind: KIND_CPU }", [("m_0", 3), ("mine", 2)]),
    ],
)
def test_a_group_gets_name_and_count(text: str, groups: list[tuple[str, int]]) -> None:
    filled = fill_instance_groups(config(f'name: "m" backend: "onnxruntime" {text}'))
    assert [(g.name, g.count) for g in filled.instance_group] == groups
    assert {g.kind for g in filled.instance_group} == {ModelInstanceGroup.KIND_CPU}


@pytest.mark.parametrize(
    ("group", "kind", "gpus"),
    [
        ("", ModelInstanceGroup.KIND_GPU, [0, 1]),
        ("kind: KIND_GPU", ModelInstanceGroup.KIND_GPU, [0, 1]),
        ("kind: KIND_GPU gpus: 1", ModelInstanceGroup.KIND_GPU, [1]),
        ("gpus: 1", ModelInstanceGroup.KIND_GPU, [1]),
        ("gpus: 7", ModelInstanceGroup.KIND_AUTO, [7]),
        ("kind: KIND_CPU", ModelInstanceGroup.KIND_CPU, []),
    ],
)
def test_a_backend_with_gpus_uses_all_of_them_unless_told_otherwise(group: str, kind: int, gpus: list[int]) -> None:
    text = f'name: "m" backend: "pytorch" instance_group {{ {group} }}'
    (filled,) = fill_instance_groups(config(text), gpus=(0, 1)).instance_group
    assert (filled.kind, list(filled.gpus), filled.count) == (kind, gpus, 1)
