import json
import logging
from pathlib import Path
from unittest import mock

import pytest

from runners.backends import driver
from runners.backends.onnxruntime import openvino
from runners.backends.onnxruntime.accelerators import check_accelerators
from runners.backends.onnxruntime.library import Runtime
from runners.errors import ConfigInvalid, KushiError, Unsupported
from tests.unit.backends.onnxruntime.stated import Files, accelerator, parameter, providers
from tests.unit.text import ONNX, config

CPU = Runtime("1.31.1", ("AzureExecutionProvider", "CPUExecutionProvider"), None)
ALL = Runtime(
    "1.31.1",
    ("TensorrtExecutionProvider", "CUDAExecutionProvider", "OpenVINOExecutionProvider", "CPUExecutionProvider"),
    None,
)
CUDA = 'gpu_execution_accelerator { name: "cuda" } '
HAS_CPU = "onnxruntime 1.31.1 has no {}, it has AzureExecutionProvider, CPUExecutionProvider: pip install "


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
    with mock.patch("runners.backends.onnxruntime.accelerators.cores_for_all", return_value=7):
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
        ({"cache_dir": "../x"}, "'cache_dir' of the OpenVINO Execution Accelerator: '../x' must be a path inside"),
    ],
)
def test_what_openvino_does_not_take_is_refused_by_name(files: Files, parameters: dict[str, str], message: str) -> None:
    with pytest.raises(KushiError) as raised:
        providers(files, accelerator("openvino", "cpu", **parameters), gpu=None)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"device_type": "GPU"}, "is the CPU, in an instance group of KIND_CPU"),
        ({"load_config": "{}"}, "is made of the other parameters"),
        ({"streams": "1"}, "is not known, did you mean 'num_streams'?"),
    ],
)
def test_what_triton_does_not_read_of_openvino_has_no_effect(
    files: Files, caplog: pytest.LogCaptureFixture, parameters: dict[str, str], why: str
) -> None:
    with caplog.at_level(logging.WARNING, "runners"):
        assert providers(files, accelerator("openvino", "cpu", **parameters), gpu=None) == providers(
            files, accelerator("openvino", "cpu"), gpu=None
        )
    (key,) = parameters
    assert caplog.messages == [f"parameter '{key}' of the OpenVINO Execution Accelerator has no effect: it {why}"]


@pytest.mark.parametrize(
    ("accelerated", "key"),
    [
        (("tensorrt", "gpu"), "trt_engine_cache_path"),
        (("tensorrt", "gpu"), "trt_timing_cache_path"),
        (("openvino", "cpu"), "cache_dir"),
    ],
)
def test_a_cache_of_another_host_becomes_one_of_the_model(
    files: Files, caplog: pytest.LogCaptureFixture, accelerated: tuple[str, str], key: str
) -> None:
    gpu = 0 if accelerated[1] == "gpu" else None
    with caplog.at_level(logging.WARNING, "runners"):
        found = providers(files, accelerator(*accelerated, **{key: "/models/plans"}), gpu=gpu)
    instead = f"{files().directory}/plans"
    assert instead in str(found)
    (line,) = caplog.messages
    assert line.endswith(f": the model may not write to '/models/plans', '{instead}' is used in its place")


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
            accelerator("tensorrt", trt_timing_cache_path="../cache"),
            ConfigInvalid,
            "'trt_timing_cache_path' of the TensorRT Execution Accelerator: '../cache' must be a path inside",
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
            [0],
            CPU,
            Unsupported,
            (
                "execution accelerator 'cuda' of model 'm' cannot be used: "
                f"{HAS_CPU.format('CUDAExecutionProvider')}'kushi[gpu]'"
            ),
        ),
        (
            accelerator("tensorrt"),
            [0],
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
    ],
)
def test_an_accelerator_that_is_not_there_is_refused(
    text: str, places: list[int | None], runtime: Runtime, kind: type[KushiError], message: str
) -> None:
    nothing = mock.patch.object(driver, "_found", return_value=(0, "the driver is not there"))
    absent = mock.patch.object(openvino, "_PACKAGE", "a_package_that_is_not_there")
    with nothing, absent, pytest.raises(kind) as raised:
        check_accelerators(config(f"{ONNX} {text}"), places, runtime)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "places", "runtime", "message"),
    [
        (
            accelerator("cuda"),
            [None],
            ALL,
            "execution accelerator 'cuda' of model 'm' has no effect: it needs an instance group on a GPU: the driv",
        ),
        (
            accelerator("tensorrt"),
            [None],
            CPU,
            "execution accelerator 'tensorrt' of model 'm' has no effect: it needs an instance group on a GPU: onnxrun",
        ),
        (
            parameter("gpu_mem_limit", "1"),
            [None],
            CPU,
            "parameter 'gpu_mem_limit' of model 'm' has no effect: it needs an instance group on a GPU: onnxruntime 1.",
        ),
        (
            accelerator("openvino", "cpu"),
            [0],
            CPU,
            "execution accelerator 'openvino' of model 'm' has no effect: no instance group is of KIND_CPU",
        ),
    ],
)
def test_an_accelerator_that_no_instance_could_use_is_logged(
    caplog: pytest.LogCaptureFixture, text: str, places: list[int | None], runtime: Runtime, message: str
) -> None:
    nothing = mock.patch.object(driver, "_found", return_value=(0, "the driver is not there"))
    with nothing, caplog.at_level(logging.WARNING, "runners"):
        check_accelerators(config(f"{ONNX} {text}"), places, runtime)
    (line,) = caplog.messages
    assert line.startswith(message)
