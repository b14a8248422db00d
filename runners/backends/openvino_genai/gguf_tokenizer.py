"""The tokenizer in the metadata of a GGUF file, as a `tokenizer.json`"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import Unsupported

__all__ = ["ends_of", "tokenizer_json"]

_CONTROL, _OWN = 3, 4
"""Kinds of tokens: that no text has, and that users have added"""
_GPT2, _LLAMA3, _QWEN2, _SMOLLM = "gpt2", "llama3", "qwen2", "smollm"
_PIECES = {
    "default": _GPT2,
    "gpt-2": _GPT2,
    "gpt2": _GPT2,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": _QWEN2,
    "smollm": _SMOLLM,
}
"""By what a file calls the way in which a text is taken into pieces before they become tokens"""
_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{{DIGITS}}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
_ENDS = {"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<end_of_turn>"}
_INSTEAD = "put the model's tokenizer.json beside it"


def tokenizer_json(metadata: Mapping[str, Any]) -> bytes:
    """Of tokens of bytes with merges, as GPT-2, Llama 3, Qwen and SmolLM have; Unsupported for others"""
    kind = metadata.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise Unsupported(f"its tokenizer is of the kind '{kind}', expected 'gpt2': {_INSTEAD}")
    pieces = metadata.get("tokenizer.ggml.pre", "default")
    if pieces not in _PIECES:
        raise Unsupported(
            f"its tokenizer takes texts into pieces as '{pieces}' does, which is unknown here: {_INSTEAD}"
        )
    tokens, merges = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.merges")
    kinds = metadata.get("tokenizer.ggml.token_type") or []
    if not (tokens and all(map(_is_list, (tokens, merges, kinds)))):
        raise Unsupported(f"it has no tokens or no merges of them: {_INSTEAD}")
    how = _PIECES[pieces]
    file = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added(tokens, kinds),
        "normalizer": {"type": "NFC"} if how == _QWEN2 else None,
        "pre_tokenizer": _pre_tokenizer(how),
        "post_processor": _beginning(metadata, tokens, usual=how == _LLAMA3),
        "decoder": _bytes(use_regex=True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": how == _LLAMA3,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": merges,
        },
    }
    return json.dumps(file).encode()


def ends_of(metadata: Mapping[str, Any]) -> list[object]:
    """The tokens with which a model ends an answer: those that a file states, and those that have the name of one"""
    tokens, kinds = (metadata.get(f"tokenizer.ggml.{name}") for name in ("tokens", "token_type"))
    named = [
        number
        for number, (token, kind) in enumerate(zip(tokens or [], kinds or [], strict=False))
        if kind == _CONTROL and token in _ENDS
    ]
    return [*(metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")), *named]


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _bytes(*, use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _pre_tokenizer(how: str) -> dict[str, Any]:
    if how == _GPT2:
        return _bytes(use_regex=True)
    if how == _SMOLLM:
        first: dict[str, Any] = {"type": "Digits", "individual_digits": True}
        return {"type": "Sequence", "pretokenizers": [first, _bytes(use_regex=True)]}
    pattern = _PATTERN.replace("{{DIGITS}}", "{1,3}" if how == _LLAMA3 else "")
    first = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [first, _bytes(use_regex=False)]}


def _added(tokens: Sequence[str], kinds: Sequence[int]) -> list[dict[str, Any]]:
    return [
        {
            "id": number,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind == _CONTROL,
        }
        for number, (token, kind) in enumerate(zip(tokens, kinds, strict=False))
        if kind in {_CONTROL, _OWN}
    ]


def _beginning(metadata: Mapping[str, Any], tokens: Sequence[str], *, usual: bool) -> dict[str, Any] | None:
    """The token in front of each text, if there is one; `usual`: whether there is where the file does not say so"""
    number = metadata.get("tokenizer.ggml.bos_token_id")
    if not (
        metadata.get("tokenizer.ggml.add_bos_token", usual) and isinstance(number, int) and number in range(len(tokens))
    ):
        return None
    token = tokens[number]
    special = {"SpecialToken": {"id": token, "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [special, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [special, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]}},
    }
