from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from runners.backends.onnxruntime import cuda
from runners.backends.onnxruntime.accelerators import check_accelerators, providers_at
from runners.backends.onnxruntime.files import ModelFiles
from runners.backends.onnxruntime.library import Runtime
from runners.errors import ConfigInvalid, KushiError, Unsupported
from tests.unit.text import ONNX, config

Files = Callable[..., ModelFiles]

CPU = Runtime("1.31.1", ("AzureExecutionProvider", "CPUExecutionProvider"), None)
ALL = Runtime(
    "1.31.1",
    ("TensorrtExecutionProvider", "CUDAExecutionProvider", "OpenVINOExecutionProvider", "CPUExecutionProvider"),
    None,
)
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
        trt_dump_ep_context_model="True",
    )
    expected = {
        "trt_fp16_enable": "1",
        "trt_max_workspace_size": "1073741824",
        "trt_int8_use_native_calibration_table": "1",
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": str(tmp_path / "models" / "m" / "1" / "cache"),
        "trt_builder_optimization_level": "3",
        "trt_profile_min_shapes": "x:1x3",
        "trt_dump_ep_context_model": "1",
        "device_id": "0",
    }
    assert providers(files, text) == [("tensorrt", expected), ("cuda", {"device_id": "0"})]


@pytest.mark.parametrize(("mode", "option"), [("FP16", "trt_fp16_enable"), ("BF16", "trt_bf16_enable"), ("FP32", "")])
def test_precision_modes_are_switches_of_tensorrt(files: Files, mode: str, option: str) -> None:
    ((_, options), _) = providers(files, accelerator("tensorrt", precision_mode=mode))
    assert set(options) == {"device_id", *filter(None, [option])}


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


def test_openvino_computes_instances_on_the_cpu(files: Files) -> None:
    text = accelerator("openvino", "cpu", num_of_threads="2")
    assert providers(files, text, gpu=None) == [("openvino", {"device_type": "CPU", "num_of_threads": "2"})]


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
            "parameter 'trt_sparsity_enable' of the TensorRT Execution Accelerator: expected 0, 1, true or false",
        ),
        (
            accelerator("tensorrt", trt_dla_core="two"),
            ConfigInvalid,
            "parameter 'trt_dla_core' of the TensorRT Execution Accelerator: expected an integer, got 'two'",
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
                f"{HAS_CPU.format('OpenVINOExecutionProvider')}onnxruntime-openvino"
            ),
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
    with mock.patch.object(cuda, "_found", return_value=(0, "the driver is not there")), pytest.raises(kind) as raised:
        check_accelerators(config(f"{ONNX} {text}"), places, runtime)
    assert str(raised.value).startswith(message)
