"""How generative models run, as their configurations state it"""

from dataclasses import dataclass

from ...errors import ConfigInvalid
from ...repository.messages import ModelConfig
from .chat import FORMS
from .parameters import CACHE_BYTES, CONTEXT, DETERMINISTIC, SEQUENCES, STEP, STEP_SECONDS, THREADS, TOOL_CALLS

__all__ = ["GenerativeSettings", "read_settings"]

_USUAL_CACHE_BYTES = 1 << 30
_USUAL_SEQUENCES = 64
_USUAL_STEP_SECONDS = 120
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
    sequences: int
    """Requests that run at the same time"""
    step_tokens: int
    """That one step takes, of prompts and answers together"""
    threads: int
    """0: as many as the process may use"""
    tool_calls: str | None
    """The form in which the model calls tools; `None`: its chat template tells"""
    step_seconds: int
    """A step that takes longer is taken for one that never ends"""


def read_settings(config: ModelConfig) -> GenerativeSettings:
    """Those that the configuration states, and the usual ones"""
    return GenerativeSettings(
        cache_bytes=_count(config, CACHE_BYTES, _USUAL_CACHE_BYTES),
        context=_count(config, CONTEXT, 0),
        deterministic=_flag(config, DETERMINISTIC),
        sequences=_count(config, SEQUENCES, _USUAL_SEQUENCES, most=1024),
        step_tokens=_count(config, STEP, _USUAL_STEP),
        threads=_count(config, THREADS, 0),
        tool_calls=_form(config),
        step_seconds=_count(config, STEP_SECONDS, _USUAL_STEP_SECONDS, most=86400),
    )


def _stated(config: ModelConfig, name: str) -> str | None:
    return config.parameters[name].string_value if name in config.parameters else None


def _count(config: ModelConfig, name: str, usual: int, *, most: int = 1 << 50) -> int:
    text = _stated(config, name)
    if text is None:
        return usual
    if not (text.isascii() and text.isdecimal() and len(text) < 18 and 0 < int(text) <= most):
        raise ConfigInvalid(
            f"parameter '{name}' of model '{config.name}' must be a number from 1 to {most}, got '{text}'"
        )
    return int(text)


def _form(config: ModelConfig) -> str | None:
    text = _stated(config, TOOL_CALLS)
    if text is not None and text not in FORMS:
        raise ConfigInvalid(
            f"parameter '{TOOL_CALLS}' of model '{config.name}' must be one of {', '.join(FORMS)}, got '{text}'"
        )
    return text


def _flag(config: ModelConfig, name: str) -> bool:
    text = _stated(config, name)
    if text is None:
        return False
    if text not in {"true", "false"}:
        raise ConfigInvalid(f"parameter '{name}' of model '{config.name}' must be 'true' or 'false', got '{text}'")
    return text == "true"
