import pytest

from runners.backends.torch.options import TorchOptions, check_applicable, read_options
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
    with pytest.raises(Unsupported, match="parameter 'ENABLE_JIT_EXECUTOR' of model 'm' is about TorchScript"):
        check_applicable(written, is_script=False)
