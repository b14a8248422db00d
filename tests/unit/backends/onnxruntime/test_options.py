from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from runners.backends.onnxruntime.files import ModelFiles
from runners.backends.onnxruntime.options import SessionOptions, read_options
from runners.backends.onnxruntime.session_entries import SESSION_ENTRIES
from runners.backends.onnxruntime.values import Provider
from runners.errors import ConfigInvalid, KushiError, Unsupported
from tests.unit.text import ONNX, config

Files = Callable[..., ModelFiles]

TRUE, FALSE = ("1", "true", "True", "TRUE", "on", "On"), ("0", "false", "False", "FALSE", "off", "OFF")
WORDS = [*((word, True) for word in TRUE), *((word, False) for word in FALSE)]


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


@pytest.mark.parametrize(("value", "meant"), WORDS)
@pytest.mark.parametrize("key", ["enable_mem_arena", "enable_mem_pattern"])
def test_switches_are_read_as_triton_reads_them(files: Files, key: str, value: str, *, meant: bool) -> None:
    options = read(files, parameter(key, value))
    assert (options.memory_arena if key == "enable_mem_arena" else options.memory_pattern) is meant


@pytest.mark.parametrize("key", SESSION_ENTRIES)
def test_session_configuration_is_passed_on_where_its_value_is_one(files: Files, key: str) -> None:
    if key.startswith("ep.context_"):
        return
    allowed = SESSION_ENTRIES[key]
    for value in allowed or ("1",):
        assert read(files, parameter(key, value)).session_entries == ((key, value),)
    if allowed is not None:
        expected = f"parameter '{key}' of model 'm': expected one of {', '.join(allowed)}, got 'yes'"
        with pytest.raises(ConfigInvalid, match=expected):
            read(files, parameter(key, "yes"))


OPENVINO = 'optimization { execution_accelerators { cpu_execution_accelerator { name: "openvino" } } }'
ENABLED = parameter("ep.context_enable", "1")


@pytest.mark.parametrize(
    ("text", "file", "more"),
    [
        (ENABLED, "model_ctx.onnx", {}),
        ('default_model_filename: "net.ort" ' + ENABLED, "net_ctx.onnx", {}),
        (ENABLED + parameter("ep.context_file_path", "out/context.onnx"), "out/context.onnx", {}),
        (ENABLED + parameter("ep.context_embed_mode", "1"), "model_ctx.onnx", {"ep.context_embed_mode": "1"}),
    ],
)
def test_an_ep_context_model_goes_beside_the_model_and_is_written_once(
    files: Files, text: str, file: str, more: dict[str, str]
) -> None:
    named = "" if "default_model_filename" in text else 'default_model_filename: "model.onnx"'
    options = read(files, f"{OPENVINO} {named} {text}")
    path = files().directory / file
    assert dict(options.session_entries) == {"ep.context_enable": "1", "ep.context_file_path": str(path), **more}
    assert options.still_to_compile() is options
    path.touch()
    assert options.still_to_compile().session_entries == ()


@pytest.mark.parametrize("path", ["/tmp/c.onnx", "../c.onnx", "a/../../c.onnx", "link/c.onnx", ""])
def test_an_ep_context_model_goes_nowhere_else(files: Files, path: str) -> None:
    (files().directory / "link").symlink_to("/tmp")
    with pytest.raises(ConfigInvalid, match=r"'ep\.context_file_path' of model 'm': .* must be a path inside"):
        read(files, OPENVINO + ENABLED + parameter("ep.context_file_path", path))


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            parameter("enable_mem_arena", "yes"),
            ConfigInvalid,
            "parameter 'enable_mem_arena' of model 'm': expected true, false, on, off, 1 or 0, got 'yes'",
        ),
        (
            parameter("execution_mode", "2"),
            ConfigInvalid,
            "parameter 'execution_mode' of model 'm': expected one of 0, 1, got '2'",
        ),
        (
            ENABLED,
            ConfigInvalid,
            "parameter 'ep.context_enable' of model 'm' needs an accelerator that compiles, as openvino; tensorrt has",
        ),
        (
            OPENVINO + parameter("ep.context_embed_mode", "1"),
            ConfigInvalid,
            "parameter 'ep.context_embed_mode' of model 'm' needs 'ep.context_enable' with it",
        ),
        (
            parameter("session.dynamic_block_base", "-1"),
            ConfigInvalid,
            f"'session.dynamic_block_base' of model 'm': expected a non-negative integer of at most {2**63 - 1}, got",
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
    at = [options.at(gpu, (), threads=1, instance="0").run_entries for gpu in (None, 0, 1)]
    assert [value for ((_, value),) in at] == ["cpu:0", "cpu:0;gpu:0", "cpu:0;gpu:1"]
    only = read(files, parameter("memory.enable_memory_arena_shrinkage", "gpu:1"), gpus=(1,))
    assert only.at(None, (), threads=1, instance="0").run_entries == ()


def test_want_of_a_library_names_the_packages_that_bring_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: str) -> None:
        raise ConfigInvalid("Failed to load library libonnxruntime_providers_cuda.so with error: libcublas.so.13\n")

    monkeypatch.setattr("kushi_native.OnnxModel", refuse)
    providers = (Provider("tensorrt", ()), Provider("cuda", ()))
    options = SessionOptions(1, 1, parallel=False, graph_level=99, providers=providers)
    with pytest.raises(ConfigInvalid, match=r"\.so\.13: pip install 'onnxruntime-gpu.*' 'tensorrt-cu13-libs==10\.\*'$"):
        options.open(tmp_path)
