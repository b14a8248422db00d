"""The parameters of generative models"""

from dataclasses import dataclass

from ...errors import ConfigInvalid
from ...repository.messages import ModelConfig

__all__ = ["PARAMETERS", "GenerativeSettings", "read_settings"]

_CACHE_BYTES, _CONTEXT, _DETERMINISTIC = "kushi.kv_cache_bytes", "kushi.max_tokens", "kushi.deterministic"
_PREFIXES, _SEQUENCES, _STEP = "kushi.prefix_cache", "kushi.max_sequences", "kushi.step_tokens"
_THREADS = "INFERENCE_NUM_THREADS"
PARAMETERS = tuple(
    sorted((_CACHE_BYTES, _CONTEXT, _DETERMINISTIC, _PREFIXES, _SEQUENCES, _STEP, _THREADS)),
)

_USUAL_CACHE_BYTES = 1 << 30
_USUAL_SEQUENCES = 64
_USUAL_STEP = 128
"""A step is not interrupted: so many tokens of prompts hold up all that is being written"""


@dataclass(frozen=True)
class GenerativeSettings:
    """How a model runs"""

    cache_bytes: int
    """Of keys and values, for all requests together"""
    context: int
    """Tokens of a prompt and its answer; 0: what the model says"""
    deterministic: bool
    """Whether an answer does not depend on what else runs: in 32 bits"""
    prefixes: bool
    """Whether what prompts have in common at their beginning is computed once"""
    sequences: int
    """Requests that run at the same time"""
    step_tokens: int
    """That one step takes, of prompts and answers together"""
    threads: int
    """0: as many as the process may use"""


def read_settings(config: ModelConfig) -> GenerativeSettings:
    """Those that the configuration states, and the usual ones"""
    return GenerativeSettings(
        cache_bytes=_count(config, _CACHE_BYTES, _USUAL_CACHE_BYTES),
        context=_count(config, _CONTEXT, 0),
        deterministic=_flag(config, _DETERMINISTIC, usual=False),
        prefixes=_flag(config, _PREFIXES, usual=True),
        sequences=_count(config, _SEQUENCES, _USUAL_SEQUENCES, most=1024),
        step_tokens=_count(config, _STEP, _USUAL_STEP),
        threads=_count(config, _THREADS, 0),
    )


def _stated(config: ModelConfig, name: str) -> str | None:
    return config.parameters[name].string_value if name in config.parameters else None


def _count(config: ModelConfig, name: str, usual: int, *, most: int = 1 << 50) -> int:
    text = _stated(config, name)
    if text is None:
        return usual
    if not (text.isascii() and text.isdecimal() and len(text) < 18 and 0 < int(text) <= most):  # noqa: PLR2004 - digits
        raise ConfigInvalid(
            f"parameter '{name}' of model '{config.name}' must be a number from 1 to {most}, got '{text}'"
        )
    return int(text)


def _flag(config: ModelConfig, name: str, *, usual: bool) -> bool:
    text = _stated(config, name)
    if text is None:
        return usual
    if text not in {"true", "false"}:
        raise ConfigInvalid(f"parameter '{name}' of model '{config.name}' must be 'true' or 'false', got '{text}'")
    return text == "true"
