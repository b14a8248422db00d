"""Small generative models with random weights, as GGUF files"""

from pathlib import Path

import numpy as np
from gguf import GGUFWriter

__all__ = ["CONTEXT", "END", "byte_names", "write_model"]

CONTEXT = 512
_WIDTH, _LAYERS, _HEADS, _OF_HEAD, _INNER = 64, 2, 4, 16, 128
_WORDS = ("the", " the", " cat", " dog", " sat", "ing", " \u00e4", "\u2603")
END = "<|end|>"
_START = "<|start|>"
_NORMAL, _CONTROL = 1, 3


def byte_names() -> list[str]:
    """What GPT-2's tokenizer calls each byte"""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = (byte for byte in range(256) if byte not in shown)
    names = {byte: chr(byte) for byte in shown} | {byte: chr(256 + number) for number, byte in enumerate(hidden)}
    return [names[byte] for byte in range(256)]


def _vocabulary() -> tuple[list[str], list[str]]:
    """Tokens, and the merges that make words of bytes"""
    names = byte_names()
    tokens, merges = list(names), []
    for word in _WORDS:
        pieces = [names[byte] for byte in word.encode()]
        while len(pieces) > 1:
            first, second, *rest = pieces
            merges.append(f"{first} {second}")
            tokens.append(first + second)
            pieces = [first + second, *rest]
    return list(dict.fromkeys(tokens)), list(dict.fromkeys(merges))


def write_model(path: Path, *, seed: int = 0, context: int = CONTEXT, kind: str = "gpt2", end: bool = True) -> Path:
    """A Llama of 0.7 MB; `end`: whether it knows a token that ends an answer"""
    tokens, merges = _vocabulary()
    tokens += [_START, END]
    drawn = np.random.default_rng(seed)
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(context)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(_LAYERS)
    writer.add_feed_forward_length(_INNER)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_HEADS // 2)
    writer.add_rope_dimension_count(_OF_HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(1)
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([_NORMAL] * (len(tokens) - 2) + [_CONTROL] * 2)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(len(tokens) - 2)
    writer.add_eos_token_id(len(tokens) - (1 if end else 2))
    writer.add_add_bos_token(value=False)
    kept = _OF_HEAD * _HEADS // 2
    shapes = {"token_embd": (len(tokens), _WIDTH), "output": (len(tokens), _WIDTH)}
    for layer in range(_LAYERS):
        of = {
            "attn_q": (_WIDTH, _WIDTH),
            "attn_k": (kept, _WIDTH),
            "attn_v": (kept, _WIDTH),
            "attn_output": (_WIDTH, _WIDTH),
            "ffn_gate": (_INNER, _WIDTH),
            "ffn_up": (_INNER, _WIDTH),
            "ffn_down": (_WIDTH, _INNER),
        }
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in of.items()}
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(_WIDTH, np.float32))
    for name, shape in shapes.items():
        weights = drawn.standard_normal(shape) * (1.0 if name == "token_embd" else 0.2)
        writer.add_tensor(f"{name}.weight", weights.astype(np.float16))
    writer.add_tensor("output_norm.weight", np.ones(_WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
