from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from runners.backends.onnxruntime.files import ModelFiles
from runners.backends.onnxruntime.options import SessionOptions, read_options
from runners.backends.onnxruntime.values import Provider
from runners.errors import ConfigInvalid, KushiError, Unsupported
from runners.repository.session_entries import SESSION_ENTRIES
from tests.unit.text import ONNX, config

Files = Callable[..., ModelFiles]


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'


def read(
    files: Files, text: str, *, gpus: Sequence[int] = (), global_threads: tuple[int, int] | None = None
) -> SessionOptions:
    return read_options(config(f"{ONNX} {text}"), files(), gpus, global_threads)


def test_without_a_word_there_is_an_arena_and_no_pattern(files: Files) -> None:
    options = read(files, "")
    assert (options.memory_arena, options.memory_pattern, options.graph_level, options.parallel) == (
        True,
        False,
        99,
        False,
    )
    assert (options.session_entries, options.run_entries, options.operator_libraries, options.profile) == (
        (),
        (),
        (),
        None,
    )


@pytest.mark.parametrize(("level", "native"), [("-1", 1), ("0", 99), ("1", 2), ("2", 0), ("7", 99)])
def test_graph_levels_are_those_of_tritons_backend(files: Files, level: str, native: int) -> None:
    assert read(files, f"optimization {{ graph {{ level: {level} }} }}").graph_level == native


@pytest.mark.parametrize(("value", "meant"), [("1", True), ("true", True), ("TRUE", True), ("0", False)])
@pytest.mark.parametrize("key", ["enable_mem_arena", "enable_mem_pattern"])
def test_switches_are_read_as_triton_reads_them(files: Files, key: str, value: str, *, meant: bool) -> None:
    options = read(files, parameter(key, value))
    assert (options.memory_arena if key == "enable_mem_arena" else options.memory_pattern) is meant


@pytest.mark.parametrize("key", SESSION_ENTRIES)
def test_session_configuration_is_passed_on_where_its_value_is_one(files: Files, key: str) -> None:
    if key == "ep.context_file_path":
        ((_, path),) = read(files, parameter(key, "context.onnx")).session_entries
        assert path.endswith("/models/m/1/context.onnx")
        return
    assert read(files, parameter(key, "1")).session_entries == ((key, "1"),)
    if SESSION_ENTRIES[key] is not None:
        with pytest.raises(ConfigInvalid, match=f"parameter '{key}' of model 'm': expected one of 0, 1.*got 'yes'"):
            read(files, parameter(key, "yes"))


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            parameter("enable_mem_arena", "on"),
            ConfigInvalid,
            "parameter 'enable_mem_arena' of model 'm': expected 0, 1, true or false, got 'on'",
        ),
        (
            parameter("execution_mode", "2"),
            ConfigInvalid,
            "parameter 'execution_mode' of model 'm': expected one of 0, 1, got '2'",
        ),
        (
            parameter("ep.context_file_path", "/etc/context.onnx"),
            ConfigInvalid,
            "parameter 'ep.context_file_path' of model 'm': '/etc/context.onnx' must be a path inside",
        ),
        (
            parameter("memory.enable_memory_arena_shrinkage", "cpu"),
            ConfigInvalid,
            "expected arenas as in 'cpu:0;gpu:0', got 'cpu'",
        ),
        (
            parameter("memory.enable_memory_arena_shrinkage", "cpu:0") + parameter("enable_mem_arena", "0"),
            ConfigInvalid,
            "has 'cpu:0', and 'enable_mem_arena' is off: there is no such arena",
        ),
        (
            parameter("memory.enable_memory_arena_shrinkage", "cpu:0;gpu:2"),
            ConfigInvalid,
            "has 'gpu:2', and no instance of the model is on that GPU",
        ),
        (
            'model_operations { op_library_filename: "../../ops.so" }',
            ConfigInvalid,
            "model_operations.op_library_filename '../../ops.so' must be a file inside the directory of the model",
        ),
        (parameter("kushi.profile", "1"), ConfigInvalid, "which the operator names"),
    ],
)
def test_what_is_wrong_is_named_with_what_was_expected(
    files: Files, text: str, kind: type[KushiError], message: str
) -> None:
    with pytest.raises(kind) as raised:
        read(files, text, gpus=(0,))
    assert message in str(raised.value)


@pytest.mark.parametrize("key", ["intra_op_thread_count", "inter_op_thread_count"])
def test_threads_of_a_model_are_refused_where_all_models_share_theirs(files: Files, key: str) -> None:
    with pytest.raises(Unsupported, match=f"parameter '{key}' of model 'm' is without effect where all models share"):
        read(files, parameter(key, "3"), global_threads=(2, 1))
    options = read(files, parameter(key, "0"), global_threads=(2, 1))
    assert (options.intra_op_threads, options.inter_op_threads) == (2, 1)


def test_each_instance_shrinks_the_arenas_that_it_has(files: Files) -> None:
    options = read(files, parameter("memory.enable_memory_arena_shrinkage", "cpu:0;gpu:0;gpu:1"), gpus=(0, 1))
    at = [options.at(gpu, (), threads=1, instance=0).run_entries for gpu in (None, 0, 1)]
    assert [value for ((_, value),) in at] == ["cpu:0", "cpu:0;gpu:0", "cpu:0;gpu:1"]
    only = read(files, parameter("memory.enable_memory_arena_shrinkage", "gpu:1"), gpus=(1,))
    assert only.at(None, (), threads=1, instance=0).run_entries == ()


def test_want_of_a_library_names_the_packages_that_bring_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: str) -> None:
        raise ConfigInvalid("Failed to load library libonnxruntime_providers_cuda.so with error: libcublas.so.13")

    monkeypatch.setattr("kushi_native.OnnxModel", refuse)
    providers = (Provider("tensorrt", ()), Provider("cuda", ()))
    options = SessionOptions(1, 1, parallel=False, graph_level=99, providers=providers)
    with pytest.raises(ConfigInvalid, match=r"libcublas\.so\.13: pip install 'onnxruntime-gpu.*' tensorrt-cu13-libs$"):
        options.open(tmp_path)
