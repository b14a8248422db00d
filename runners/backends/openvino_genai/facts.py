"""What is known of a generative model from the files that people have: a GGUF file, or a directory of OpenVINO's"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...bounded_json import read_json
from ...errors import ConfigInvalid, Unsupported
from .gguf import read_metadata
from .gguf_tokenizer import tokenizer_json

__all__ = ["Facts", "read_facts"]

_TOKENIZER = "tokenizer.json"
_MOST_BYTES = 256 << 20


@dataclass(frozen=True)
class Facts:
    """Of one version"""

    tokenizer: bytes
    """The content of a tokenizer.json"""
    context: int
    """Tokens as far as it can look back"""
    ends: Sequence[int]
    """The tokens with which it ends an answer"""
    numbers_of_token: int
    """That are kept of each token: keys and values of all layers"""


def read_facts(path: Path) -> Facts:
    """Of the file of a model; ConfigInvalid and Unsupported say what is missing"""
    return _of_gguf(path) if path.suffix == ".gguf" else _of_directory(path.parent)


def _of_gguf(path: Path) -> Facts:
    metadata = read_metadata(path)
    kind = metadata.get("general.architecture")

    def number(name: str) -> int | None:
        value = metadata.get(f"{kind}.{name}")
        return value if isinstance(value, int) and value > 0 else None

    heads, width = number("attention.head_count"), number("embedding_length")
    layers, context = number("block_count"), number("context_length")
    if not (heads and width and layers and context):
        raise ConfigInvalid(f"'{path}' does not say how large the model is: it is none of a language")
    of_head = number("attention.key_length") or width // heads
    beside = path.with_name(_TOKENIZER)
    try:
        tokenizer = _read(beside) if beside.is_file() else tokenizer_json(metadata)
    except Unsupported as error:
        raise Unsupported(f"'{path}': {error}") from None
    ends = [metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot")]
    return Facts(
        tokenizer=tokenizer,
        context=context,
        ends=sorted({end for end in ends if isinstance(end, int)}),
        numbers_of_token=2 * layers * (number("attention.head_count_kv") or heads) * of_head,
    )


def _of_directory(directory: Path) -> Facts:
    if not (directory / _TOKENIZER).is_file():
        raise ConfigInvalid(f"'{directory}' has no {_TOKENIZER}: it is part of every model that `optimum-cli` exports")
    said = _json(directory / "config.json")
    said = {**said, **said.get("text_config", {})}

    def number(*names: str) -> int:
        found = next((said[name] for name in names if isinstance(said.get(name), int) and said[name] > 0), None)
        if found is None:
            raise ConfigInvalid(f"'{directory / 'config.json'}' does not say '{names[0]}'")
        return found

    heads = number("num_attention_heads")
    of_head = said.get("head_dim") or number("hidden_size") // heads
    kept = said.get("num_key_value_heads") or heads
    generation = directory / "generation_config.json"
    ends = (_json(generation) if generation.is_file() else {}).get("eos_token_id", said.get("eos_token_id"))
    return Facts(
        tokenizer=_read(directory / _TOKENIZER),
        context=number("max_position_embeddings"),
        ends=sorted(end for end in (ends if isinstance(ends, list) else [ends]) if isinstance(end, int)),
        numbers_of_token=2 * number("num_hidden_layers") * kept * of_head,
    )


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ConfigInvalid(f"'{path}' has more than {_MOST_BYTES} bytes")
    return content


def _json(path: Path) -> Mapping[str, Any]:
    try:
        said = read_json(_read(path))
    except FileNotFoundError:
        raise ConfigInvalid(f"unable to find '{path}'") from None
    except (ValueError, RecursionError) as error:
        raise ConfigInvalid(f"'{path}' is no JSON: {error}") from error
    if not isinstance(said, dict):
        raise ConfigInvalid(f"'{path}' is no JSON object")
    return said
