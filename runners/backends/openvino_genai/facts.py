"""What is known of a generative model from the files that people have: a GGUF file, or a directory of OpenVINO's"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import ConfigInvalid, Unsupported
from .chat import Chats, chats_of_directory, chats_of_gguf
from .files import read_file, read_object
from .gguf import read_metadata
from .gguf_tokenizer import ends_of, tokenizer_json

__all__ = ["Facts", "read_facts"]

_TOKENIZER = "tokenizer.json"
_MOST = 1 << 30
"""Of whatever a model has"""


@dataclass(frozen=True)
class Facts:
    """Of one version"""

    tokenizer: bytes
    """The content of a tokenizer.json"""
    context: int
    """Tokens as far as it can look back"""
    ends: Sequence[int]
    """The tokens with which it ends an answer"""
    vocabulary: int
    """How many different tokens it knows"""
    numbers_of_token: int
    """That are kept of each token: keys and values of all layers"""
    chats: Chats


def read_facts(path: Path) -> Facts:
    """Of the file of a model; ConfigInvalid and Unsupported say what is missing"""
    return _of_gguf(path) if path.suffix == ".gguf" else _of_directory(path.parent)


def _of_gguf(path: Path) -> Facts:
    metadata = read_metadata(path)
    kind = metadata.get("general.architecture")
    said = _Said(str(path), {name.removeprefix(f"{kind}."): value for name, value in metadata.items()})
    tokens = metadata.get("tokenizer.ggml.tokens")
    vocabulary = len(tokens) if isinstance(tokens, list) else said.number("vocab_size")
    beside = path.with_name(_TOKENIZER)
    try:
        tokenizer = read_file(beside) if beside.is_file() else tokenizer_json(metadata)
    except Unsupported as error:
        raise Unsupported(f"'{path}': {error}") from None
    heads = said.number("attention.head_count")
    of_head = said.number("attention.key_length", said.number("embedding_length") // heads)
    return Facts(
        tokenizer=tokenizer,
        context=said.number("context_length"),
        ends=_known(ends_of(metadata), vocabulary),
        vocabulary=vocabulary,
        numbers_of_token=2 * said.number("block_count") * said.number("attention.head_count_kv", heads) * of_head,
        chats=chats_of_gguf(path, metadata),
    )


def _of_directory(directory: Path) -> Facts:
    if not (directory / _TOKENIZER).is_file():
        raise ConfigInvalid(f"'{directory}' has no {_TOKENIZER}: it is part of every model that `optimum-cli` exports")
    config = read_object(directory / "config.json")
    of_text = config.get("text_config")
    said = _Said(str(directory / "config.json"), {**config, **(of_text if isinstance(of_text, dict) else {})})
    generation = directory / "generation_config.json"
    ends = (read_object(generation) if generation.is_file() else {}).get("eos_token_id")
    if ends is None:
        ends = said.values.get("eos_token_id")
    vocabulary, heads = said.number("vocab_size"), said.number("num_attention_heads")
    of_head = said.number("head_dim", said.number("hidden_size") // heads)
    kept = said.number("num_hidden_layers") * said.number("num_key_value_heads", heads)
    return Facts(
        tokenizer=read_file(directory / _TOKENIZER),
        context=said.number("max_position_embeddings"),
        ends=_known(ends if isinstance(ends, list) else [ends], vocabulary),
        vocabulary=vocabulary,
        numbers_of_token=2 * kept * of_head,
        chats=chats_of_directory(directory),
    )


@dataclass(frozen=True)
class _Said:
    """What a file says of its model"""

    file: str
    values: Mapping[str, Any]

    def number(self, name: str, usual: int = 0) -> int:
        """One above 0; `usual` where the file leaves it out, 0: it must not"""
        value = self.values.get(name)
        if value is None and usual:
            return usual
        if not isinstance(value, int) or not 0 < value <= _MOST:
            raise ConfigInvalid(f"'{self.file}' must say '{name}', a number from 1 to {_MOST}, got {value!r}"[:500])
        return value


def _known(ends: Sequence[object], vocabulary: int) -> list[int]:
    return sorted({end for end in ends if isinstance(end, int) and 0 <= end < vocabulary})
