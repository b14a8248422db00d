"""Inputs that are `optional`, where a framework computes with all of them or not at all"""

from ..errors import ConfigInvalid
from ..repository.messages import ModelConfig

__all__ = ["refuse_optional_inputs"]


def refuse_optional_inputs(config: ModelConfig, framework: str) -> None:
    """
    To be called when a model is bound. The text is that of OpenVINO's engine; where there are batches no model may have
    one, whatever its framework, and `check_against_model` says so in Triton's words
    """
    optional = next((tensor.name for tensor in config.input if tensor.optional), None)
    if optional is not None and config.max_batch_size == 0:
        raise ConfigInvalid(
            f"model '{config.name}': input '{optional}' is optional, and {framework} knows no inputs that are"
        )
