"""Loads generative models: what their files say, how much they may keep, the process of their pipeline"""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from kushi_native import GenerativeModel

from ...errors import ConfigInvalid, Unsupported
from ...repository.messages import ModelConfig
from .. import Backend, Bound, Opened, Placed, Prepared
from ..worker_models import ProcessLimits, of_this_program
from .facts import Facts, read_facts
from .options import GenerativeSettings, read_settings
from .schema import complete, of_tokens

__all__ = ["GenerativeBackend"]

# it is imported in the processes of its models alone
if find_spec("openvino_genai") is None:
    raise ImportError("No module named 'openvino_genai'", name="openvino_genai")

_ENTRY = Path(__file__).with_name("tokens_entry.py")
_START_SECONDS = 1800.0
_BLOCK = 32
"""Tokens that are kept together"""
_BYTES_OF_NUMBER = {False: 1.25, True: 4.0}
"""That is kept of a token: one byte and what scales it, or 32 bits where the model is deterministic"""
_LEAST_BLOCKS = 4


class GenerativeBackend(Backend):
    """OpenVINO GenAI"""

    def why_no_gpu(self) -> str:
        return "generative models run on CPUs: the kind is KIND_CPU, KIND_MODEL or KIND_AUTO"

    def places_itself(self) -> bool:
        return True

    def prepare(self, model: Placed) -> Prepared:
        if len(model.places) > 1:
            raise Unsupported(
                f"model '{model.config.name}' has {len(model.places)} instances, expected 1: "
                "a generative model runs its requests side by side, so many at a time as 'kushi.max_sequences' says"
            )
        settings = read_settings(model.config)
        return Prepared(partial(_Opened, model=model, settings=settings), threads=settings.threads)

    def locate(self, directory: Path, name: str) -> Path:
        if not (directory / name).exists() and any(directory.glob("*.safetensors")):
            raise Unsupported(
                f"'{directory}' has a model as PyTorch keeps it: "
                f"`optimum-cli export openvino --model {directory} OUT` makes one of OpenVINO's of it"
            )
        return super().locate(directory, name)


class _Opened(Opened):
    """A model whose files were looked into; its weights are read in its process alone"""

    def __init__(self, path: Path, *, model: Placed, settings: GenerativeSettings) -> None:
        self._path = path
        self._model = model
        self._settings = settings
        self._facts = read_facts(path)

    def complete(self, config: ModelConfig, _default_max_batch_size: int) -> ModelConfig:
        return complete(config)

    def bind(self, config: ModelConfig) -> Bound:
        blocks = _blocks(config, self._facts, self._settings)
        return Bound(partial(self._sessions, config, blocks), threads=lambda: self._settings.threads or 1)

    def _sessions(self, config: ModelConfig, blocks: int, _threads: int) -> Sequence[GenerativeModel]:
        order = json.dumps({"path": self._opened_path(), **_pipeline(self._settings, blocks)})
        workers = of_this_program(_ENTRY, self._model.source, _START_SECONDS)
        limits = ProcessLimits(0, 0, silence_seconds=self._settings.step_seconds)
        workers = replace(workers, arguments=lambda _number: {"generative": order}, limits=limits)
        (tokens,) = workers.models(self._model, of_tokens(config))
        options = {
            "context": self._settings.context or self._facts.context,
            "kept_tokens": (blocks - 1) * _BLOCK,
            "vocabulary": self._facts.vocabulary,
            "ends": self._facts.ends,
            "most_running": self._settings.sequences,
            "chat": self._facts.chats.options(self._settings.tool_calls),
        }
        return [GenerativeModel(tokens, self._facts.tokenizer, json.dumps(options))]

    def _opened_path(self) -> str:
        """A file of GGUF, or a directory"""
        path = self._path.absolute()
        return str(path if path.suffix == ".gguf" else path.parent)


def _blocks(config: ModelConfig, facts: Facts, settings: GenerativeSettings) -> int:
    """So many blocks of tokens can be kept: as the bytes allow, and no more than all requests can use"""
    if settings.context > facts.context:
        raise ConfigInvalid(
            f"model '{config.name}' can look back {facts.context} tokens, "
            f"and 'kushi.max_tokens' says {settings.context}"
        )
    context = settings.context or facts.context
    bytes_of_block = int(facts.numbers_of_token * _BYTES_OF_NUMBER[settings.deterministic] * _BLOCK)
    useful = settings.sequences * -(-context // _BLOCK) + 1
    blocks = min(settings.cache_bytes // bytes_of_block, useful)
    if blocks < _LEAST_BLOCKS:
        raise ConfigInvalid(
            f"model '{config.name}' keeps {bytes_of_block} bytes of {_BLOCK} tokens, "
            f"so 'kushi.kv_cache_bytes' must be at least {_LEAST_BLOCKS * bytes_of_block}, got {settings.cache_bytes}"
        )
    return blocks


def _pipeline(settings: GenerativeSettings, blocks: int) -> dict[str, object]:
    precision = "f32" if settings.deterministic else "u8"
    properties: dict[str, object] = {"KV_CACHE_PRECISION": precision}
    if settings.deterministic:
        properties["INFERENCE_PRECISION_HINT"] = "f32"
    if settings.threads:
        properties["INFERENCE_NUM_THREADS"] = settings.threads
    scheduler = {
        "num_kv_blocks": blocks,
        "max_num_seqs": settings.sequences,
        "max_num_batched_tokens": settings.step_tokens,
        # the pipeline of 2026.4 gives wrong tokens with it where equal prompts run side by side
        "enable_prefix_caching": False,
        "dynamic_split_fuse": True,
    }
    return {"properties": properties, "scheduler": scheduler, "blocks": blocks - 1, "block_tokens": _BLOCK}
