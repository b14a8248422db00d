"""
Models of texts: a network that takes tokens, beside its `tokenizer.json`, is served as one that takes texts.

What the network's answer becomes is said by the files that sentence-transformers and transformers write beside it,
or by parameters of the configuration, which come first.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import kushi_native

from ...errors import ConfigInvalid, EngineFailed, Unsupported
from ...repository.complete import check_against_model, complete
from ...repository.files import read_file
from ...repository.messages import ModelConfig
from ...repository.specification import parameter
from ...repository.tensors import TensorInfo
from .text_files import POOLINGS, TextFiles
from .text_parameters import ACTIVATION, BATCH_TOKENS, DIMENSIONS, MAX_TOKENS, MODE, POOLING, PROMPT, PROMPT_NAME

__all__ = ["TextOptions", "is_of_texts", "measured_batch_tokens", "read_text_options"]

_LOG = logging.getLogger(__name__)
_TOKENIZER = "tokenizer.json"
_TEXT, _PAIR = "text", "text_pair"
_MAX_BATCH_SIZE = 2048
"""Texts of a request, where nothing is said: they are divided among batches all the same"""
_ACTIVATIONS = ("none", "normalize", "sigmoid", "softmax")
_ANY = "any"
_TOKENS = ("input_ids", "attention_mask", "token_type_ids")
_SCORES = "logits"
_RANKS = {"sentence_embedding": 2, _SCORES: 2, "last_hidden_state": 3, "token_embeddings": 3, "text_embeds": 2}
"""The dimensions of outputs that are answers; the first one that there is is taken"""
_LENGTH = 64
"""Tokens of the texts by which a budget is found"""
_MOST_ROWS = 32
_RUNS = 3
_LONG_SECONDS = 0.25
_USUAL_TOKENS = 1024
"""Where nothing can be measured"""
_MOST_TOKENS = 1 << 24
_CLOSE = 1.05
"""A batch is large enough where a larger one would not be cheaper by more than this"""


@dataclass(frozen=True)
class TextOptions:
    """How a network answers texts"""

    pooling: str
    activation: str
    output: str
    """The network's"""
    longest: int | None
    batch_tokens: int
    """0 leaves it to what is measured"""
    lower_case: bool
    prompts: Mapping[str, str]
    """What a request may have put before its texts, by a name"""
    prompt: str
    """What is put there otherwise"""
    dimensions: Sequence[int] | None
    """To which numbers vectors may be cut: none, any where it is empty, or these"""
    scores: bool
    """Whether it answers scores of classes, or vectors"""
    labels: Sequence[str]
    """Of the classes of scores"""
    tokenizer: Path
    name: str
    """Of the answer"""

    def open(self, network: kushi_native.OnnxModel) -> kushi_native.OnnxTexts:
        of_core = {
            "pooling": self.pooling,
            "activation": self.activation,
            "output": self.output,
            "longest": self.longest,
            # it is measured once the network is known to be one of texts
            "batch_tokens": self.batch_tokens or _USUAL_TOKENS,
            "lower_case": self.lower_case,
            "prompts": dict(self.prompts),
            "prompt": self.prompt,
            "dimensions": self.dimensions,
            "scores": self.scores,
            "labels": self.labels,
        }
        return kushi_native.OnnxTexts(network, read_file(self.tokenizer, "tokenizer"), json.dumps(of_core))

    def inputs(self, *, batched: bool) -> list[TensorInfo]:
        """Scores may be of two texts that belong together"""
        names = [_TEXT, _PAIR] if self.scores else [_TEXT]
        return [TensorInfo(name, "BYTES", (-1, 1) if batched else (-1,)) for name in names]

    def outputs(self, width: int) -> list[TensorInfo]:
        return [TensorInfo(self.name, "FP32", (-1, width))]

    def with_batches(self, config: ModelConfig) -> ModelConfig:
        """One that says nothing of them gets large ones"""
        if config.max_batch_size or config.input or config.output:
            return config
        completed = ModelConfig()
        completed.CopyFrom(config)
        completed.max_batch_size = _MAX_BATCH_SIZE
        return completed

    def complete(self, config: ModelConfig, width: int, default_max_batch_size: int) -> ModelConfig:
        """A second text need not come"""
        completed = complete(
            self.with_batches(config), self.inputs(batched=True), self.outputs(width), default_max_batch_size
        )
        if not config.input:
            for tensor in completed.input:
                tensor.optional = tensor.name == _PAIR
        return completed

    def check(self, config: ModelConfig, width: int) -> None:
        """Holds a complete configuration against what the model takes and answers"""
        held = ModelConfig()
        held.CopyFrom(config)
        for tensor in held.input:
            tensor.optional = tensor.optional and tensor.name != _PAIR
        stated = {tensor.name for tensor in held.input}
        inputs = self.inputs(batched=config.max_batch_size > 0)
        check_against_model(held, [one for one in inputs if one.name != _PAIR or _PAIR in stated], self.outputs(width))


def is_of_texts(
    config: ModelConfig, path: Path, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo], *, on_cpu: bool
) -> bool:
    """Whether the model of the file at `path` is to take texts; `inputs` and `outputs` are the network's"""
    mode = config.parameters[MODE].string_value if MODE in config.parameters else "auto"
    if mode not in {"auto", "no", "yes"}:
        raise ConfigInvalid(
            f"parameter '{MODE}' of model '{config.name}': expected 'auto', 'no' or 'yes', got '{mode}'"
        )
    is_there = (path.parent / _TOKENIZER).is_file()
    stated = [one.name for one in config.input]
    states_texts = stated in ([_TEXT], [_TEXT, _PAIR]) and _TEXT not in [one.name for one in inputs]
    is_wanted = mode == "yes" or (mode == "auto" and is_there and states_texts)
    if is_wanted and not is_there:
        raise ConfigInvalid(f"'{path.parent / _TOKENIZER}' is not there, which parameter '{MODE}' is about")
    if is_wanted and not on_cpu:
        raise Unsupported(f"model '{config.name}' takes texts: its instances are on the CPU, without accelerators")
    if mode == "no" or is_wanted or not is_there or config.input or config.output:
        return is_wanted
    # as it was served before it had a tokenizer beside it
    return on_cpu and all(map(_is_of_tokens, inputs)) and any(map(_is_answer, outputs))


def _is_of_tokens(tensor: TensorInfo) -> bool:
    return tensor.name in _TOKENS and tensor.datatype == "INT64" and tensor.dims == (-1, -1)


def _is_answer(tensor: TensorInfo) -> bool:
    rank = _RANKS.get(tensor.name)
    return rank == len(tensor.dims) and tensor.datatype == "FP32" and tensor.dims[-1] > 0


def read_text_options(config: ModelConfig, path: Path, outputs: Sequence[TensorInfo]) -> TextOptions:
    """What files and parameters say, each checked. `outputs` are the network's"""
    files = TextFiles(path.parent)
    output = _output(outputs)
    of_words = len(output.dims) == 3
    is_scores = output.name == _SCORES and not of_words
    pooling = _chosen(config, POOLING, POOLINGS) or (files.pooling() if of_words else "none")
    activation = _chosen(config, ACTIVATION, _ACTIVATIONS)
    if activation is None:
        activation = files.activation_of_scores(output.dims[-1]) if is_scores else files.activation_of_vectors()
    prompts, prompt = _prompts(config, files)
    return TextOptions(
        pooling=pooling,
        activation=activation,
        output=output.name,
        longest=parameter(config, MAX_TOKENS, 0, most=_MOST_TOKENS) or files.longest(),
        batch_tokens=parameter(config, BATCH_TOKENS, 0, most=_MOST_TOKENS),
        lower_case=files.lower_case(),
        prompts=prompts,
        prompt=prompt,
        dimensions=None if is_scores else _dimensions(config, files),
        scores=is_scores,
        labels=files.labels(output.dims[-1]) if is_scores else (),
        tokenizer=path.parent / _TOKENIZER,
        name=_name(config, "scores" if is_scores else "embedding"),
    )


def measured_batch_tokens(network: kushi_native.OnnxModel, longest: int) -> int:
    """As many tokens of a batch as make it cheap: a larger one would keep others waiting, for little"""
    names = [name for name, _, _ in network.inputs]
    length = min(_LENGTH, longest)
    costs: dict[int, float] = {}
    rows = 1
    while rows <= _MOST_ROWS:
        try:
            seconds = network.measure({name: [rows, length] for name in names}, _RUNS)
        except EngineFailed as error:
            _LOG.debug("%d rows of %d tokens cannot be measured: %s", rows, length, error)
            break
        costs[rows * length] = seconds / rows
        if seconds > _LONG_SECONDS:
            break
        rows *= 2
    cheapest = min(costs.values(), default=0.0)
    tokens = (tokens for tokens, cost in costs.items() if cost <= _CLOSE * cheapest)
    return min(tokens, default=_USUAL_TOKENS)


def _name(config: ModelConfig, usual: str) -> str:
    return config.output[0].name if len(config.output) == 1 else usual


def _output(outputs: Sequence[TensorInfo]) -> TensorInfo:
    known = [output for name in _RANKS for output in outputs if output.name == name and _is_answer(output)]
    return known[0] if known else outputs[0]


def _chosen(config: ModelConfig, key: str, known: Sequence[str]) -> str | None:
    if key not in config.parameters:
        return None
    text = config.parameters[key].string_value
    if text not in known:
        raise ConfigInvalid(
            f"parameter '{key}' of model '{config.name}': expected one of {', '.join(known)}, got '{text}'"
        )
    return text


def _prompts(config: ModelConfig, files: TextFiles) -> tuple[Mapping[str, str], str]:
    """By their names, and the one that is put before texts where a request names none"""
    prompts, usual = files.prompts()
    if PROMPT in config.parameters:
        return prompts, config.parameters[PROMPT].string_value
    chosen = _chosen(config, PROMPT_NAME, list(prompts)) or usual
    return prompts, prompts.get(chosen, "") if chosen else ""


def _dimensions(config: ModelConfig, files: TextFiles) -> Sequence[int] | None:
    """Only vectors of a model that was made for it say something when they are cut"""
    if DIMENSIONS not in config.parameters:
        return files.dimensions()
    text = config.parameters[DIMENSIONS].string_value
    numbers = [part.strip() for part in text.split(",")]
    if text == _ANY:
        return ()
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in numbers):
        raise ConfigInvalid(
            f"parameter '{DIMENSIONS}' of model '{config.name}': expected '{_ANY}' or numbers with commas between, got "
            f"'{text}'"
        )
    return [int(part) for part in numbers]
