"""The inputs and outputs of generative models: those of Triton's vLLM backend"""

from ...repository.messages import DataType, ModelConfig

__all__ = ["complete", "of_tokens"]

_INPUTS = (
    ("text_input", "TYPE_STRING", False),
    ("stream", "TYPE_BOOL", True),
    ("sampling_parameters", "TYPE_STRING", True),
    ("exclude_input_in_output", "TYPE_BOOL", True),
    ("return_finish_reason", "TYPE_BOOL", True),
    ("return_cumulative_logprob", "TYPE_BOOL", True),
    ("return_logprobs", "TYPE_BOOL", True),
    ("return_num_input_tokens", "TYPE_BOOL", True),
    ("return_num_output_tokens", "TYPE_BOOL", True),
)
_OUTPUTS = (
    ("text_output", "TYPE_STRING"),
    ("finish_reason", "TYPE_STRING"),
    ("cumulative_logprob", "TYPE_FP32"),
    ("logprobs", "TYPE_STRING"),
    ("num_input_tokens", "TYPE_UINT32"),
    ("num_output_tokens", "TYPE_UINT32"),
)


def complete(config: ModelConfig) -> ModelConfig:
    """With those that it does not state"""
    completed = ModelConfig()
    completed.CopyFrom(config)
    if not config.input:
        for name, datatype, optional in _INPUTS:
            completed.input.add(name=name, data_type=DataType.Value(datatype), dims=[1], optional=optional)
    if not config.output:
        for name, datatype in _OUTPUTS:
            completed.output.add(name=name, data_type=DataType.Value(datatype), dims=[-1])
    completed.model_transaction_policy.decoupled = True
    return completed


def of_tokens(config: ModelConfig) -> ModelConfig:
    """What the process of the pipeline takes and gives: the other ends are `crowd.py`, and the native crate"""
    inner = ModelConfig()
    inner.CopyFrom(config)
    del inner.input[:]
    del inner.output[:]
    inner.input.add(name="PROMPT", data_type=DataType.Value("TYPE_INT32"), dims=[-1])
    inner.input.add(name="ORDER", data_type=DataType.Value("TYPE_STRING"), dims=[1])
    inner.output.add(name="TOKENS", data_type=DataType.Value("TYPE_INT32"), dims=[-1])
    inner.output.add(name="LOG_PROBABILITIES", data_type=DataType.Value("TYPE_FP32"), dims=[-1])
    inner.output.add(name="END", data_type=DataType.Value("TYPE_INT32"), dims=[-1])
    return inner
