import pytest

from runners.backends.torch.options import TorchOptions, check_applicable, check_graphs, read_options
from runners.errors import ConfigInvalid, Unsupported
from runners.repository.messages import ModelConfig
from runners.repository.values import BOOLEANS
from tests.unit.text import config


def parameters(**values: str) -> ModelConfig:
    text = "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}' for key, value in values.items()
    )
    return config(f'name: "m" {text}')


def test_the_defaults_are_tritons_and_the_model_decides_about_its_weights() -> None:
    assert read_options(parameters()) == TorchOptions(
        inference_mode=True,
        optimized_execution=True,
        cudnn=True,
        cache_cleaning=False,
        weight_sharing=None,
        jit_executor=None,
        jit_profiling=None,
        tensor_fuser=None,
        intra_op_threads=0,
        inter_op_threads=0,
        compile="",
        graph_sizes=(),
        pads_graphs=False,
    )


@pytest.mark.parametrize("word", ["true", "TRUE", "on", "1"])
def test_switches_are_read_as_triton_reads_them(word: str) -> None:
    options = read_options(parameters(ENABLE_WEIGHT_SHARING=word, DISABLE_CUDNN=word, ENABLE_JIT_PROFILING=word))
    assert (options.weight_sharing, options.cudnn, options.jit_profiling) == (True, False, True)


@pytest.mark.parametrize("word", ["false", "False", "off", "0"])
def test_a_switch_may_be_off(word: str) -> None:
    options = read_options(
        parameters(INFERENCE_MODE=word, DISABLE_OPTIMIZED_EXECUTION=word, ENABLE_WEIGHT_SHARING=word)
    )
    assert (options.inference_mode, options.optimized_execution, options.weight_sharing) == (False, True, False)


def test_thread_counts_are_numbers() -> None:
    options = read_options(parameters(INTRA_OP_THREAD_COUNT="3", INTER_OP_THREAD_COUNT="2"))
    assert (options.intra_op_threads, options.inter_op_threads) == (3, 2)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [("INFERENCE_MODE", "maybe", BOOLEANS), ("INTRA_OP_THREAD_COUNT", "-1", "a non-negative integer of at most 1024")],
)
def test_a_wrong_value_is_refused(key: str, value: str, expected: str) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        read_options(parameters(**{key: value}))
    assert str(raised.value) == f"parameter '{key}' of model 'm': expected {expected}, got '{value}'"


def test_what_steers_torchscript_is_refused_for_an_exported_program() -> None:
    written = parameters(ENABLE_JIT_EXECUTOR="true")
    check_applicable(written, is_script=True)
    with pytest.raises(Unsupported, match=r"parameter 'ENABLE_JIT_EXECUTOR' of model 'm' is about TorchScript"):
        check_applicable(written, is_script=False)


def test_graphs_are_asked_for_by_sizes_or_by_a_mode_of_compilation() -> None:
    stated = read_options(parameters(**{"kushi.cuda_graphs": "2,1", "kushi.cuda_graphs_padding": "true"}))
    assert (stated.graph_sizes, stated.pads_graphs, stated.graphs_asked_by) == ((1, 2), True, "kushi.cuda_graphs")
    compiled = read_options(parameters(**{"kushi.compile": "reduce-overhead"}))
    assert (compiled.compile, compiled.graphs_asked_by) == ("reduce-overhead", "kushi.compile")
    assert not read_options(parameters(**{"kushi.compile": "default"})).graphs_asked_by


def test_an_unknown_mode_of_compilation_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match=r"'kushi.compile' of model 'm': expected default or reduce-overhead, got"):
        read_options(parameters(**{"kushi.compile": "max-autotune"}))


def test_torchscript_is_not_compiled() -> None:
    with pytest.raises(Unsupported, match=r"'kushi.compile' of model 'm' is about exported programs, and the model is"):
        check_applicable(parameters(**{"kushi.compile": "default"}), is_script=True)


def test_padding_without_graphs_and_graphs_without_a_gpu_are_refused() -> None:
    padded = parameters(**{"kushi.cuda_graphs_padding": "true"})
    with pytest.raises(ConfigInvalid, match=r"'kushi.cuda_graphs_padding' of model 'm' needs 'kushi.cuda_graphs'"):
        check_graphs(padded, read_options(padded), [0])
    graphs = parameters(**{"kushi.cuda_graphs": "1"})
    check_graphs(graphs, read_options(graphs), [0])
    with pytest.raises(ConfigInvalid, match=r"asks for CUDA graphs, and an instance is on the CPU: use KIND_GPU"):
        check_graphs(graphs, read_options(graphs), [None])
