"""
Models of texts: a network that takes tokens, beside its `tokenizer.json`, is served as one that takes texts.

What the network's answer becomes is said by the files that sentence-transformers and transformers write beside it,
or by parameters of the configuration, which come first.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import kushi_native

from ...bounded_json import read_json
from ...errors import ConfigInvalid, EngineFailed, Unsupported
from ...repository.files import read_file
from ...repository.messages import ModelConfig
from ...repository.specification import parameter
from ...repository.tensors import TensorInfo
from .text_parameters import ACTIVATION, BATCH_TOKENS, MAX_TOKENS, MODE, POOLING

__all__ = ["TextOptions", "is_of_texts", "measured_batch_tokens", "read_text_options"]

_LOG = logging.getLogger(__name__)
_TOKENIZER = "tokenizer.json"
_TEXT = "text"
_MAX_BATCH_SIZE = 1024
"""Texts of a request, where nothing is said: they are divided among batches all the same"""
_POOLINGS = ("mean", "cls", "max", "last", "none")
_ACTIVATIONS = ("none", "normalize", "sigmoid", "softmax")
_BY_MODE = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
}
_BY_NAME = {"lasttoken": "last"}
_MODULES = "modules.json"
_TOKENS = ("input_ids", "attention_mask", "token_type_ids")
_SCORES = "logits"
_RANKS = {"sentence_embedding": 2, _SCORES: 2, "last_hidden_state": 3, "token_embeddings": 3, "text_embeds": 2}
"""The dimensions of outputs that are answers; the first one that there is is taken"""
_OF_CROSS_ENCODERS = "sbert_ce_default_activation_function"
_FUNCTIONS = {"Identity": "none", "Sigmoid": "sigmoid", "Softmax": "softmax"}
"""Of PyTorch, as cross-encoders name what becomes of their scores"""
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
    tokenizer: Path
    name: str
    """Of the answer"""

    def open(self, network: kushi_native.OnnxModel) -> kushi_native.OnnxTexts:
        plain = asdict(self)
        of_core = {key: plain[key] for key in ("pooling", "activation", "output", "longest", "batch_tokens")}
        # it is measured once the network is known to be one of texts
        of_core["batch_tokens"] = self.batch_tokens or _USUAL_TOKENS
        return kushi_native.OnnxTexts(network, read_file(self.tokenizer, "tokenizer"), json.dumps(of_core))

    def inputs(self, *, batched: bool) -> list[TensorInfo]:
        return [TensorInfo(_TEXT, "BYTES", (-1, 1) if batched else (-1,))]

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
    states_texts = [one.name for one in config.input] == [_TEXT] and _TEXT not in [one.name for one in inputs]
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
    directory = path.parent
    output = _output(outputs)
    of_words = len(output.dims) == 3
    is_scores = output.name == _SCORES and not of_words
    pooling = _chosen(config, POOLING, _POOLINGS) or (_pooling(directory) if of_words else "none")
    activation = _chosen(config, ACTIVATION, _ACTIVATIONS)
    if activation is None:
        activation = _of_scores(directory, output) if is_scores else _of_vectors(directory)
    return TextOptions(
        pooling=pooling,
        activation=activation,
        output=output.name,
        longest=parameter(config, MAX_TOKENS, 0, most=_MOST_TOKENS) or _longest(directory),
        batch_tokens=parameter(config, BATCH_TOKENS, 0, most=_MOST_TOKENS),
        tokenizer=directory / _TOKENIZER,
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


def _pooling(directory: Path) -> str:
    path = directory / _pooling_folder(directory) / "config.json"
    if not path.is_file():
        return "mean"
    stated = _file(path)
    modes = [
        _BY_MODE.get(key, key) for key, value in stated.items() if key.startswith("pooling_mode") and value is True
    ]
    if isinstance(mode := stated.get("pooling_mode"), str):
        modes.append(_BY_NAME.get(mode, mode))
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        named = " and ".join(modes) or "nothing"
        raise Unsupported(f"'{path}' wants {named}, expected one of {', '.join(_BY_MODE.values())}")
    return modes[0]


def _pooling_folder(directory: Path) -> str:
    """As modules.json says, or as it is called mostly"""
    found = [module for module in _modules(directory) if _kind(module) == "Pooling"] if _has_modules(directory) else []
    named = str(found[0].get("path", "")) if found else ""
    return named if named and "/" not in named and named != ".." else "1_Pooling"


def _has_modules(directory: Path) -> bool:
    return (directory / _MODULES).is_file()


def _kind(module: Mapping[str, Any]) -> str:
    return str(module.get("type", "")).rpartition(".")[2]


def _of_vectors(directory: Path) -> str:
    """As the modules say behind the network and its pooling; without them, vectors have the length 1"""
    if not _has_modules(directory):
        return "normalize"
    kinds = [_kind(module) for module in _modules(directory)]
    if odd := [kind for kind in kinds if kind not in {"Normalize", "Pooling", "Transformer"}]:
        raise Unsupported(f"'{directory / _MODULES}' has a module {odd[0]}, which is not supported")
    return "normalize" if "Normalize" in kinds else "none"


def _of_scores(directory: Path, output: TensorInfo) -> str:
    stated = _file(directory / "config.json")
    own = stated.get("sentence_transformers")
    function = own.get("activation_fn") if isinstance(own, dict) else stated.get(_OF_CROSS_ENCODERS)
    if isinstance(function, str) and (named := _FUNCTIONS.get(function.rpartition(".")[2])):
        return named
    match stated.get("problem_type"):
        case "regression":
            return "none"
        case "multi_label_classification":
            return "sigmoid"
    return "sigmoid" if output.dims[-1] == 1 else "softmax"


def _longest(directory: Path) -> int | None:
    """None: the tokenizer's own file may say it"""
    for file, key in (("sentence_bert_config.json", "max_seq_length"), ("tokenizer_config.json", "model_max_length")):
        stated = _file(directory / file).get(key)
        # what transformers writes where there is no limit
        if isinstance(stated, int) and 0 < stated < 1_000_000:
            return stated
    return None


def _modules(directory: Path) -> Sequence[Mapping[str, Any]]:
    read = _read(directory / _MODULES)
    return [module for module in read if isinstance(module, dict)] if isinstance(read, list) else []


def _file(path: Path) -> Mapping[str, Any]:
    read = _read(path) if path.is_file() else {}
    return read if isinstance(read, dict) else {}


def _read(path: Path) -> object:
    try:
        return read_json(read_file(path, "configuration"))
    except (ValueError, RecursionError) as error:
        raise ConfigInvalid(f"'{path}' is no JSON: {error}") from None
