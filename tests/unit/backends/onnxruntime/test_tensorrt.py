from pathlib import Path

import pytest

from runners.backends.onnxruntime.tensorrt import TENSORRT
from runners.errors import ConfigInvalid
from tests.unit.backends.onnxruntime.stated import Files, accelerator, providers


def test_tensorrt_comes_before_cuda_with_tritons_names_for_its_options(files: Files, tmp_path: Path) -> None:
    text = accelerator(
        "tensorrt",
        precision_mode="FP16",
        max_workspace_size_bytes="1073741824",
        int8_use_native_calibration_table="true",
        trt_engine_cache_enable="1",
        trt_engine_cache_path="cache",
        trt_builder_optimization_level="3",
        trt_profile_min_shapes="x:1x3",
        trt_sparsity_enable="True",
    )
    expected = {
        "trt_fp16_enable": "1",
        "trt_max_workspace_size": "1073741824",
        "trt_int8_use_native_calibration_table": "1",
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": str(tmp_path / "models" / "m" / "1" / "cache"),
        "trt_builder_optimization_level": "3",
        "trt_profile_min_shapes": "x:1x3",
        "trt_sparsity_enable": "1",
        "device_id": "0",
    }
    assert providers(files, text) == [("tensorrt", expected), ("cuda", {"device_id": "0"})]


@pytest.mark.parametrize(("mode", "option"), [("FP16", "trt_fp16_enable"), ("BF16", "trt_bf16_enable"), ("FP32", "")])
def test_precision_modes_are_switches_of_tensorrt(files: Files, mode: str, option: str) -> None:
    ((_, options), _) = providers(files, accelerator("tensorrt", precision_mode=mode))
    assert set(options) == {"device_id", *filter(None, [option])}


SWITCHES = (
    "int8_use_native_calibration_table",
    "trt_build_heuristics_enable",
    "trt_context_memory_sharing_enable",
    "trt_detailed_build_log",
    "trt_dla_enable",
    "trt_dump_ep_context_model",
    "trt_engine_cache_enable",
    "trt_force_sequential_engine_build",
    "trt_force_timing_cache",
    "trt_layer_norm_fp32_fallback",
    "trt_sparsity_enable",
    "trt_timing_cache_enable",
)


NUMBERS = {
    "max_workspace_size_bytes": "4294967296",
    "trt_auxiliary_streams": "-1",
    "trt_builder_optimization_level": "3",
    "trt_dla_core": "0",
    "trt_ep_context_embed_mode": "1",
    "trt_max_partition_iterations": "1000",
    "trt_min_subgraph_size": "1",
}


TEXTS = {
    "int8_calibration_table_name": "calibration.flatbuffers",
    "trt_engine_cache_prefix": "mine",
    "trt_profile_max_shapes": "x:4x3,y:4x1",
    "trt_profile_min_shapes": "x:1x3,y:1x1",
    "trt_profile_opt_shapes": "x:2x3,y:2x1",
    "trt_tactic_sources": "-CUDNN,+CUBLAS",
}


PATHS = ("trt_engine_cache_path", "trt_ep_context_file_path", "trt_timing_cache_path")


ONCE_OFF = ("trt_cuda_graph_enable", "trt_dump_subgraphs")


OTHER_NAMES = {
    "max_workspace_size_bytes": "trt_max_workspace_size",
    "int8_calibration_table_name": "trt_int8_calibration_table_name",
    "int8_use_native_calibration_table": "trt_int8_use_native_calibration_table",
}


def tensorrt(files: Files, **parameters: str) -> dict[str, str]:
    ((_, options), _) = providers(files, accelerator("tensorrt", **parameters))
    return options


def test_every_parameter_of_tritons_tensorrt_accelerator_is_known() -> None:
    known = {*SWITCHES, *NUMBERS, *TEXTS, *PATHS, *ONCE_OFF, "precision_mode", "trt_extra_plugin_lib_paths"}
    assert len(known) == 32
    more = {"trt_engine_hw_compatible", "trt_op_types_to_exclude", "trt_weight_stripped_engine_enable"}
    assert known | more == set(TENSORRT.parameters)


@pytest.mark.parametrize("key", SWITCHES)
@pytest.mark.parametrize(("word", "value"), [("1", "1"), ("True", "1"), ("on", "1"), ("0", "0"), ("FALSE", "0")])
def test_a_switch_of_tensorrt_is_passed_on_as_the_provider_reads_it(
    files: Files, key: str, word: str, value: str
) -> None:
    assert tensorrt(files, **{key: word})[OTHER_NAMES.get(key, key)] == value


@pytest.mark.parametrize(("key", "value"), [*NUMBERS.items(), *TEXTS.items()])
def test_numbers_and_texts_of_tensorrt_are_passed_on(files: Files, key: str, value: str) -> None:
    assert tensorrt(files, **{key: value})[OTHER_NAMES.get(key, key)] == value


@pytest.mark.parametrize("key", ONCE_OFF)
def test_what_tensorrt_may_not_do_may_be_said_to_be_off(files: Files, key: str) -> None:
    assert tensorrt(files, **{key: "false"})[key] == "0"


@pytest.mark.parametrize(
    ("key", "path"),
    [
        *((key, path) for key in PATHS for path in ("../x", "a/../../x", "link/x", "")),
        # caches that lie elsewhere are made anew
        ("trt_ep_context_file_path", "/tmp/x"),
    ],
)
def test_tensorrt_writes_nowhere_but_into_the_directory_of_the_model(files: Files, key: str, path: str) -> None:
    (files().directory / "link").symlink_to("/tmp")
    with pytest.raises(ConfigInvalid, match=f"parameter '{key}' of the TensorRT .* must be a path inside"):
        tensorrt(files, **{key: path})


@pytest.mark.parametrize(
    ("stated", "placed"),
    [
        ({}, {}),
        ({"trt_engine_cache_enable": "0", "trt_timing_cache_enable": "0", "trt_dump_ep_context_model": "0"}, {}),
        ({"trt_engine_cache_enable": "1"}, {"trt_engine_cache_path": "."}),
        ({"precision_mode": "INT8"}, {"trt_engine_cache_path": "."}),
        ({"trt_timing_cache_enable": "1"}, {"trt_engine_cache_path": ".", "trt_timing_cache_path": "."}),
        (
            {"trt_timing_cache_enable": "1", "trt_engine_cache_path": "a"},
            {"trt_engine_cache_path": "a", "trt_timing_cache_path": "a"},
        ),
        (
            {"trt_timing_cache_enable": "1", "trt_timing_cache_path": "b"},
            {"trt_engine_cache_path": ".", "trt_timing_cache_path": "b"},
        ),
    ],
)
def test_caches_of_tensorrt_without_a_path_are_with_the_model_and_never_where_the_server_runs(
    files: Files, stated: dict[str, str], placed: dict[str, str]
) -> None:
    options = tensorrt(files, **stated)
    found = {key: Path(options[key]) for key in PATHS if key in options}
    assert found == {key: files().directory / path for key, path in placed.items()}


@pytest.mark.parametrize(
    ("stated", "context", "engines"),
    [
        ({}, ".", "."),
        ({"trt_engine_cache_path": "cache"}, ".", "cache"),
        ({"trt_ep_context_file_path": "out/c.onnx"}, "out/c.onnx", "."),
        ({"trt_ep_context_file_path": "out", "trt_engine_cache_path": "out/cache"}, "out", "cache"),
    ],
)
def test_engines_of_an_ep_context_model_are_said_by_where_they_lie_from_it(
    files: Files, stated: dict[str, str], context: str, engines: str
) -> None:
    options = tensorrt(files, trt_dump_ep_context_model="1", **stated)
    assert Path(options["trt_ep_context_file_path"]) == files().directory / context
    assert options["trt_engine_cache_path"] == engines


def test_engines_of_an_ep_context_model_lie_beside_it(files: Files) -> None:
    stated = {"trt_ep_context_file_path": "out/c.onnx", "trt_engine_cache_path": "cache"}
    with pytest.raises(ConfigInvalid, match=r"m/1/cache' must be inside '.*/m/1/out', where the EP context model goes"):
        tensorrt(files, trt_dump_ep_context_model="1", **stated)


def test_plugins_of_tensorrt_come_out_of_the_directory_of_the_model(files: Files, tmp_path: Path) -> None:
    for name in ("a.so", "b.so"):
        (files().directory / name).touch()
    ((_, options), _) = providers(files, accelerator("tensorrt", trt_extra_plugin_lib_paths="a.so;b.so"))
    directory = tmp_path / "models" / "m" / "1"
    assert options["trt_extra_plugin_lib_paths"] == f"{directory}/a.so;{directory}/b.so"
    with pytest.raises(
        ConfigInvalid, match=r"'trt_extra_plugin_lib_paths' of the TensorRT .*: '/a\.so' must be a file"
    ):
        providers(files, accelerator("tensorrt", trt_extra_plugin_lib_paths="/a.so"))
