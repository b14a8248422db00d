import json
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from runners.backends.onnxruntime import cuda, openvino
from runners.backends.onnxruntime.accelerators import check_accelerators, providers_at
from runners.backends.onnxruntime.files import ModelFiles
from runners.backends.onnxruntime.library import Runtime
from runners.backends.onnxruntime.tensorrt import TENSORRT
from runners.errors import ConfigInvalid, KushiError, Unsupported
from tests.unit.text import ONNX, config

Files = Callable[..., ModelFiles]

CPU = Runtime("1.31.1", ("AzureExecutionProvider", "CPUExecutionProvider"), None)
ALL = Runtime(
    "1.31.1",
    ("TensorrtExecutionProvider", "CUDAExecutionProvider", "OpenVINOExecutionProvider", "CPUExecutionProvider"),
    None,
)
CUDA = 'gpu_execution_accelerator { name: "cuda" } '
HAS_CPU = "onnxruntime 1.31.1 has no {}, it has AzureExecutionProvider, CPUExecutionProvider: pip install "


def accelerator(name: str, place: str = "gpu", **parameters: str) -> str:
    stated = " ".join(f'parameters {{ key: "{key}" value: "{value}" }}' for key, value in parameters.items())
    inside = f'{place}_execution_accelerator {{ name: "{name}" {stated} }}'
    return f"optimization {{ execution_accelerators {{ {inside} }} }}"


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'


def providers(files: Files, text: str, gpu: int | None = 0) -> list[tuple[str, dict[str, str]]]:
    made = providers_at(config(f"{ONNX} {text}"), gpu, files())
    return [(provider.accelerator, dict(provider.options)) for provider in made]


def test_an_instance_on_a_gpu_computes_with_cuda_on_that_one(files: Files) -> None:
    assert providers(files, "", gpu=3) == [("cuda", {"device_id": "3"})]
    assert providers(files, "", gpu=None) == []


def test_options_of_cuda_are_passed_on(files: Files) -> None:
    text = accelerator(
        "cuda",
        gpu_mem_limit="1000",
        arena_extend_strategy="kSameAsRequested",
        cudnn_conv_algo_search="HEURISTIC",
        do_copy_in_default_stream="true",
        use_tf32="false",
    )
    expected = {
        "gpu_mem_limit": "1000",
        "arena_extend_strategy": "kSameAsRequested",
        "cudnn_conv_algo_search": "HEURISTIC",
        "do_copy_in_default_stream": "1",
        "use_tf32": "0",
        "device_id": "1",
    }
    assert providers(files, text, gpu=1) == [("cuda", expected)]


def test_parameters_of_old_are_options_of_cuda(files: Files) -> None:
    text = " ".join(
        (
            parameter("cudnn_conv_algo_search", "2"),
            parameter("gpu_mem_limit", "18446744073709551615"),
            parameter("arena_extend_strategy", "1"),
            parameter("do_copy_in_default_stream", "0"),
        )
    )
    expected = {
        "arena_extend_strategy": "kSameAsRequested",
        "cudnn_conv_algo_search": "DEFAULT",
        "do_copy_in_default_stream": "0",
        "gpu_mem_limit": "18446744073709551615",
        "device_id": "0",
    }
    assert providers(files, text) == [("cuda", expected)]


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


@pytest.mark.parametrize("key", PATHS)
@pytest.mark.parametrize("path", ["/tmp/x", "../x", "a/../../x", "link/x", ""])
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


@pytest.mark.parametrize(
    ("stated", "properties"),
    [
        ({}, {"INFERENCE_NUM_THREADS": "3", "INFERENCE_PRECISION_HINT": "f32"}),
        (
            {"num_of_threads": "2", "num_streams": "4"},
            {"INFERENCE_NUM_THREADS": "2", "NUM_STREAMS": "4", "INFERENCE_PRECISION_HINT": "f32"},
        ),
        ({"precision": "BF16"}, {"INFERENCE_NUM_THREADS": "3", "INFERENCE_PRECISION_HINT": "bf16"}),
        ({"precision": "FP32"}, {"INFERENCE_NUM_THREADS": "3", "INFERENCE_PRECISION_HINT": "f32"}),
        ({"precision": "ACCURACY"}, {"INFERENCE_NUM_THREADS": "3", "EXECUTION_MODE_HINT": "ACCURACY"}),
        (
            {"cache_dir": "cache"},
            {"INFERENCE_NUM_THREADS": "3", "CACHE_DIR": "CACHE", "INFERENCE_PRECISION_HINT": "f32"},
        ),
    ],
)
def test_openvino_computes_instances_on_the_cpu_which_share_its_cores(
    files: Files, tmp_path: Path, stated: dict[str, str], properties: dict[str, str]
) -> None:
    text = accelerator("openvino", "cpu", **stated) + " instance_group { kind: KIND_CPU count: 2 }"
    with mock.patch("runners.backends.onnxruntime.accelerators.usable_cores", return_value=7):
        ((name, options),) = providers(files, text, gpu=None)
    found = json.loads(options.pop("load_config"))
    cache = str(tmp_path / "models" / "m" / "1" / "cache")
    assert (name, options) == ("openvino", {})
    assert found == {"CPU": {key: cache if value == "CACHE" else value for key, value in properties.items()}}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"precision": "INT8"}, "'precision' of the OpenVINO Execution Accelerator: expected one of ACCURACY, BF16"),
        ({"num_streams": "0"}, "'num_streams' of the OpenVINO Execution Accelerator: expected an integer of at"),
        ({"cache_dir": "/tmp"}, "'cache_dir' of the OpenVINO Execution Accelerator: '/tmp' must be a path inside"),
        ({"device_type": "GPU"}, "'device_type' of the OpenVINO Execution Accelerator is not supported: it is the CPU"),
        ({"load_config": "{}"}, "'load_config' of the OpenVINO Execution Accelerator is not supported: it is made of"),
        ({"streams": "1"}, "unknown parameter 'streams' is provided for OpenVINO Execution Accelerator, did you mean"),
    ],
)
def test_what_openvino_does_not_take_is_refused_by_name(files: Files, parameters: dict[str, str], message: str) -> None:
    with pytest.raises(KushiError) as raised:
        providers(files, accelerator("openvino", "cpu", **parameters), gpu=None)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            accelerator("cuda", gpu_mem_limits="1"),
            ConfigInvalid,
            (
                "unknown parameter 'gpu_mem_limits' is provided for CUDA Execution Accelerator, did you mean "
                "'gpu_mem_limit'?"
            ),
        ),
        (
            accelerator("tensorrt", trt_engine_cache_enabled="1"),
            ConfigInvalid,
            "unknown parameter 'trt_engine_cache_enabled' is provided for TensorRT Execution Accelerator, did you",
        ),
        (
            accelerator("tensorrt", precision_mode="FP8"),
            ConfigInvalid,
            "unsupported precision mode 'FP8' is requested, expected FP32, FP16, BF16, INT8",
        ),
        (
            accelerator("tensorrt", trt_sparsity_enable="maybe"),
            ConfigInvalid,
            "'trt_sparsity_enable' of the TensorRT Execution Accelerator: expected true, false, on, off, 1 or 0, got",
        ),
        (
            accelerator("tensorrt", trt_dla_core="two"),
            ConfigInvalid,
            "'trt_dla_core' of the TensorRT Execution Accelerator: expected an integer of at least 0, got 'two'",
        ),
        (
            accelerator("tensorrt", trt_min_subgraph_size="0"),
            ConfigInvalid,
            "'trt_min_subgraph_size' of the TensorRT Execution Accelerator: expected an integer of at least 1, got '0'",
        ),
        (
            accelerator("tensorrt", trt_builder_optimization_level="6"),
            ConfigInvalid,
            "expected an integer from 0 to 5, got '6'",
        ),
        (
            accelerator("cuda", gpu_mem_limit="-1"),
            ConfigInvalid,
            "'gpu_mem_limit' of the CUDA Execution Accelerator: expected an integer of at least 0, got '-1'",
        ),
        (
            accelerator("tensorrt", trt_fp16_enable="1"),
            Unsupported,
            "'trt_fp16_enable' of the TensorRT Execution Accelerator is not supported: it is said by 'precision_mode'",
        ),
        (
            accelerator("tensorrt", trt_dump_subgraphs="1"),
            Unsupported,
            "'trt_dump_subgraphs' of the TensorRT Execution Accelerator is not supported: it writes files into the",
        ),
        (
            accelerator("cuda", enable_cuda_graph="true"),
            Unsupported,
            "parameter 'enable_cuda_graph' of the CUDA Execution Accelerator is not supported: it replays a CUDA graph",
        ),
        (
            accelerator("cuda", user_compute_stream="1"),
            Unsupported,
            "parameter 'user_compute_stream' of the CUDA Execution Accelerator is not supported: it is an address",
        ),
        (
            accelerator("cuda", use_tf32="2"),
            ConfigInvalid,
            "parameter 'use_tf32' of the CUDA Execution Accelerator: expected true, false, on, off, 1 or 0, got '2'",
        ),
        (
            accelerator("tensorrt", trt_engine_cache_prefix="../x"),
            ConfigInvalid,
            "expected the name of a file without a directory, got '../x'",
        ),
        (
            accelerator("tensorrt", trt_timing_cache_path="/var/cache"),
            ConfigInvalid,
            "'trt_timing_cache_path' of the TensorRT Execution Accelerator: '/var/cache' must be a path inside",
        ),
        (
            accelerator("tensorrt", trt_cuda_graph_enable="1"),
            Unsupported,
            "parameter 'trt_cuda_graph_enable' of the TensorRT Execution Accelerator is not supported: it replays a",
        ),
        (
            accelerator("cuda", device_id="1"),
            Unsupported,
            "parameter 'device_id' of the CUDA Execution Accelerator is not supported: it is said by instance_group",
        ),
        (
            accelerator("cuda", cudnn_conv_algo_search="FAST"),
            ConfigInvalid,
            "expected one of EXHAUSTIVE, HEURISTIC, DEFAULT, got 'FAST'",
        ),
        (
            parameter("arena_extend_strategy", "7"),
            ConfigInvalid,
            "unsupported arena_extend_strategy value '7' is requested, expected one of 0 (kNextPowerOfTwo), 1",
        ),
        (
            accelerator("cuda", gpu_mem_limit="1") + parameter("gpu_mem_limit", "2"),
            ConfigInvalid,
            "'gpu_mem_limit' of model 'm' is '2' among its parameters and '1' among those of its CUDA",
        ),
    ],
)
def test_what_no_provider_knows_is_refused_by_name(
    files: Files, text: str, kind: type[KushiError], message: str
) -> None:
    with pytest.raises(kind) as raised:
        providers(files, text)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("text", "places", "runtime", "kind", "message"),
    [
        (
            accelerator("cuda"),
            [None],
            CPU,
            Unsupported,
            (
                "execution accelerator 'cuda' of model 'm' cannot be used: "
                f"{HAS_CPU.format('CUDAExecutionProvider')}'kushi[gpu]'"
            ),
        ),
        (
            accelerator("tensorrt"),
            [None],
            CPU,
            Unsupported,
            (
                "execution accelerator 'tensorrt' of model 'm' cannot be used: "
                f"{HAS_CPU.format('TensorrtExecutionProvider')}'kushi[gpu]'"
            ),
        ),
        (
            accelerator("openvino", "cpu"),
            [None],
            CPU,
            Unsupported,
            (
                "execution accelerator 'openvino' of model 'm' cannot be used: "
                f"{HAS_CPU.format('OpenVINOExecutionProvider')}'kushi[openvino]'"
            ),
        ),
        (
            f"optimization {{ execution_accelerators {{ {2 * CUDA} }} }}",
            [0],
            ALL,
            ConfigInvalid,
            "execution accelerator 'cuda' of model 'm' is requested 2 times, expected it once",
        ),
        (accelerator("amx"), [0], ALL, ConfigInvalid, "unknown Execution Accelerator 'amx' is requested, expected"),
        (accelerator("cuda", "cpu"), [None], ALL, ConfigInvalid, "unknown Execution Accelerator 'cuda' is requested"),
        (
            accelerator("cuda"),
            [None],
            ALL,
            ConfigInvalid,
            "execution accelerator 'cuda' of model 'm' needs an instance group on a GPU: the driver is not there",
        ),
        (
            parameter("gpu_mem_limit", "1"),
            [None],
            CPU,
            ConfigInvalid,
            "parameter 'gpu_mem_limit' of model 'm' needs an instance group on a GPU: onnxruntime 1.31.1 has no CUDA",
        ),
        (
            accelerator("openvino", "cpu"),
            [0],
            ALL,
            ConfigInvalid,
            "execution accelerator 'openvino' of model 'm' needs an instance group of KIND_CPU",
        ),
    ],
)
def test_an_accelerator_that_nothing_could_use_is_refused(
    text: str, places: list[int | None], runtime: Runtime, kind: type[KushiError], message: str
) -> None:
    nothing = mock.patch.object(cuda, "_found", return_value=(0, "the driver is not there"))
    absent = mock.patch.object(openvino, "_PACKAGE", "a_package_that_is_not_there")
    with nothing, absent, pytest.raises(kind) as raised:
        check_accelerators(config(f"{ONNX} {text}"), places, runtime)
    assert str(raised.value).startswith(message)
