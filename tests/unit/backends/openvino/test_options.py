"""What the parameters of a model of OpenVINO say, in the words of Triton's backend."""

from pathlib import Path

import pytest

from runners.backends.files import ModelFiles
from runners.backends.openvino.options import NetworkOptions, check_cores_alone, read_options
from runners.errors import ConfigInvalid, Unsupported
from runners.repository.layout import scan
from tests import models
from tests.unit.text import config

F32 = ("INFERENCE_PRECISION_HINT", "f32")


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'


@pytest.fixture
def files(tmp_path: Path) -> ModelFiles:
    models.write(tmp_path / "models", "m", b"")
    (source,) = scan([tmp_path / "models"]).models
    return ModelFiles(source, 1, {})


def read(files: ModelFiles, text: str = "", devices: tuple[str, ...] = ("CPU",)) -> NetworkOptions:
    return read_options(config(f'name: "m" backend: "openvino" {text}'), files, devices)


def test_without_a_word_it_is_the_cpu_in_full_precision_with_a_stream_for_each_instance(files: ModelFiles) -> None:
    options = read(files)
    assert (options.device, options.divides_itself) == ("CPU", False)
    assert dict(options.in_streams(3, 2)) == dict(
        [F32, ("ENABLE_CPU_PINNING", "NO"), ("INFERENCE_NUM_THREADS", "6"), ("NUM_STREAMS", "3")]
    )
    assert dict(options.on_caller()) == dict(
        [F32, ("ENABLE_CPU_PINNING", "NO"), ("INFERENCE_NUM_THREADS", "1"), ("NUM_STREAMS", "0")]
    )


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        (parameter("NUM_STREAMS", "auto"), {"NUM_STREAMS": "AUTO"}),
        (parameter("NUM_STREAMS", "NUMA"), {"NUM_STREAMS": "NUMA"}),
        (parameter("NUM_STREAMS", "3"), {"NUM_STREAMS": "3"}),
        (parameter("PERFORMANCE_HINT", "Throughput"), {"PERFORMANCE_HINT": "THROUGHPUT"}),
        (
            parameter("PERFORMANCE_HINT", "LATENCY") + parameter("INFERENCE_NUM_THREADS", "5"),
            {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": "5"},
        ),
        (parameter("HINT_BF16", "yes") + parameter("NUM_STREAMS", "1"), {"INFERENCE_PRECISION_HINT": "bf16"}),
        (
            parameter("COMPILATION_NUM_THREADS", "2") + parameter("NUM_STREAMS", "1"),
            {"COMPILATION_NUM_THREADS": "2"},
        ),
    ],
)
def test_what_is_stated_reaches_openvino(files: ModelFiles, text: str, properties: dict[str, str]) -> None:
    options = read(files, text)
    assert options.divides_itself
    found = dict(options.in_streams(4, 1))
    assert properties.items() <= found.items()
    assert ("NUM_STREAMS" in found) == ("NUM_STREAMS" in text)


@pytest.mark.parametrize(
    ("threads", "instances", "streams", "each"), [(0, 2, "", 0), (4, 2, "", 2), (5, 2, "", 3), (6, 2, "3", 2)]
)
def test_threads_are_those_of_all_instances_together(
    files: ModelFiles, threads: int, instances: int, streams: str, each: int
) -> None:
    text = parameter("INFERENCE_NUM_THREADS", str(threads))
    options = read(files, text + (parameter("NUM_STREAMS", streams) if streams else ""))
    assert options.threads_of(instances) == each


@pytest.mark.parametrize(
    "device",
    ["CPU", "GPU", "GPU.1", "AUTO", "AUTO:GPU,CPU", "multi:cpu,gpu.0", "HETERO:GPU,CPU", "AUTO:-GPU", "BATCH:CPU(4)"],
)
def test_a_device_may_choose_among_others(files: ModelFiles, device: str) -> None:
    options = read(files, parameter("TARGET_DEVICE", device), ("CPU", "GPU.0", "GPU.1"))
    assert options.device == device.upper()
    assert options.divides_itself == (device != "CPU")
    assert ("ENABLE_CPU_PINNING" in dict(options.in_streams(1, 1))) == (device == "CPU")


@pytest.mark.parametrize("device", ["NPU", "AUTO:NPU,CPU", "GPU.7", "CPUS"])
def test_a_device_that_is_not_there_is_refused_with_those_that_are(files: ModelFiles, device: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"OpenVINO shows no device '.*' here, it has CPU, GPU\.0, GPU\.1"):
        read(files, parameter("TARGET_DEVICE", device), ("CPU", "GPU.0", "GPU.1"))


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("INFERENCE_NUM_THREADS", "-1", "to be a non-negative number, got -1"),
        ("COMPILATION_NUM_THREADS", "many", "to be a non-negative number, got many"),
        ("HINT_BF16", "NO", "to be YES, got NO"),
        ("NUM_STREAMS", "0", "to be either AUTO/NUMA/<int_value>, got 0"),
        ("NUM_STREAMS", "some", "to be either AUTO/NUMA/<int_value>, got some"),
        ("PERFORMANCE_HINT", "FAST", "to be LATENCY/THROUGHPUT/CUMULATIVE_THROUGHPUT, got FAST"),
        ("ENABLE_BATCH_PADDING", "1", "to be YES or NO, got 1"),
        ("RESHAPE_IO_LAYERS", "true", "to be YES or NO, got true"),
        ("SKIP_OV_DYNAMIC_BATCHSIZE", "on", "to be YES or NO, got on"),
    ],
)
def test_other_values_are_refused_in_tritons_words(files: ModelFiles, key: str, value: str, expected: str) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        read(files, parameter(key, value))
    assert str(raised.value) == f"expected the parameter '{key}' {expected}"


def test_operators_of_the_models_own_lie_in_its_directory(files: ModelFiles) -> None:
    library = files.directory / "operators.so"
    library.touch()
    assert read(files, parameter("CPU_EXTENSION_PATH", "operators.so")).extension == str(library)
    for name in ("/lib/operators.so", "../../operators.so", "others.so"):
        with pytest.raises(ConfigInvalid, match="CPU_EXTENSION_PATH"):
            read(files, parameter("CPU_EXTENSION_PATH", name))


def test_compiled_networks_are_kept_where_the_operator_says(files: ModelFiles, tmp_path: Path) -> None:
    kept = ModelFiles(files.source, 1, {"engine-cache-directory": str(tmp_path)})
    assert dict(read(kept).stated)["CACHE_DIR"] == str(tmp_path / "m" / "1" / "openvino")
    assert "CACHE_DIR" not in dict(read(files).stated)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (parameter("NUM_STREAMS", "2"), "NUM_STREAMS"),
        (parameter("PERFORMANCE_HINT", "LATENCY"), "PERFORMANCE_HINT"),
        (parameter("INFERENCE_NUM_THREADS", "3"), "INFERENCE_NUM_THREADS"),
        (parameter("TARGET_DEVICE", "AUTO"), "TARGET_DEVICE"),
    ],
)
def test_what_asks_for_threads_of_openvino_does_not_go_with_cores(files: ModelFiles, text: str, key: str) -> None:
    stated = config(f'name: "m" backend: "openvino" {text} {parameter("kushi.cores", "0")}')
    with pytest.raises(Unsupported) as raised:
        check_cores_alone(stated, read_options(stated, files, ("CPU",)), 2)
    assert str(raised.value).startswith(
        "parameter 'kushi.cores' of model 'm' keeps each instance on its cores with one thread, and "
        f"'{key}' asks for threads of OpenVINO's"
    )


@pytest.mark.parametrize("text", ["", parameter("INFERENCE_NUM_THREADS", "2")])
def test_one_thread_for_each_instance_goes_with_cores(files: ModelFiles, text: str) -> None:
    stated = config(f'name: "m" backend: "openvino" {text} {parameter("kushi.cores", "0")}')
    check_cores_alone(stated, read_options(stated, files, ("CPU",)), 2)
