"""Small generative models with random weights, as GGUF files, and what their pipeline answers by itself"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from gguf import GGUFWriter
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

__all__ = [
    "CHATML",
    "CONTEXT",
    "END_ID",
    "bare",
    "byte_names",
    "ids_of",
    "text_of",
    "write_directory",
    "write_model",
    "write_scripted",
]

CONTEXT = 512
_WIDTH, _LAYERS, _HEADS, _OF_HEAD, _INNER = 64, 2, 4, 16, 128
_WORDS = ("the", " the", " cat", " dog", " sat", "ing", " \u00e4", "\u2603")
_START, _END = "<|start|>", "<|end|>"
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


END_ID = len(_vocabulary()[0]) + 1
"""The token that ends an answer"""


def write_model(path: Path, *, seed: int = 0, context: int = CONTEXT, kind: str = "gpt2") -> Path:
    """A Llama of 0.7 MB"""
    tokens, merges = _vocabulary()
    tokens += [_START, _END]
    drawn = np.random.default_rng(seed)
    kinds = [_NORMAL] * (len(tokens) - 2) + [_CONTROL] * 2
    scale = {"token_embd": 1.0}
    shapes = _shapes(len(tokens))
    weights = {name: drawn.standard_normal(shape) * scale.get(name, 0.2) for name, shape in shapes.items()}
    writer = _writer(path, dict(zip(tokens, kinds, strict=True)), merges, context=context, kind=kind)
    _write(writer, weights)
    return path


def _writer(
    path: Path, tokens: Mapping[str, int], merges: Sequence[str], *, context: int = CONTEXT, kind: str = "gpt2"
) -> GGUFWriter:
    """With all but the weights; `tokens`: each with its kind, the last two those of the beginning and of the end"""
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
    writer.add_token_list(list(tokens))
    writer.add_token_types(list(tokens.values()))
    writer.add_token_merges(merges)
    writer.add_bos_token_id(len(tokens) - 2)
    writer.add_eos_token_id(len(tokens) - 1)
    writer.add_add_bos_token(value=False)
    return writer


def _shapes(tokens: int) -> dict[str, tuple[int, int]]:
    """Of all weights but those of norms"""
    kept = _OF_HEAD * _HEADS // 2
    shapes = {"token_embd": (tokens, _WIDTH), "output": (tokens, _WIDTH)}
    of_layer = {
        "attn_q": (_WIDTH, _WIDTH),
        "attn_k": (kept, _WIDTH),
        "attn_v": (kept, _WIDTH),
        "attn_output": (_WIDTH, _WIDTH),
        "ffn_gate": (_INNER, _WIDTH),
        "ffn_up": (_INNER, _WIDTH),
        "ffn_down": (_WIDTH, _INNER),
    }
    for layer in range(_LAYERS):
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in of_layer.items()}
    return shapes


def _write(writer: GGUFWriter, weights: Mapping[str, NDArray[np.float64]]) -> None:
    for layer in range(_LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(_WIDTH, np.float32))
    for name, values in weights.items():
        writer.add_tensor(f"{name}.weight", values.astype(np.float16))
    writer.add_tensor("output_norm.weight", np.ones(_WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


CHATML = """\
{%- for message in messages %}{{ message.role + ':' + (message.content or '') + '\\n' }}{% endfor %}
{%- if tools %}{{ 'tools:' + (tools | tojson) + '\\n' }}{% endif %}
{%- if add_generation_prompt %}{{ 'assistant:' + messages[-1].content }}{% endif %}"""
"""The template of a scripted model: the prompt ends with what was said last"""


def write_scripted(path: Path, scripts: Mapping[str, Sequence[str]]) -> Path:
    """A model that answers a prompt behind `<|NAME|>` with the pieces of that script, each of them one token"""
    names = byte_names()
    usual, merges = _vocabulary()
    lines = {
        name: ["".join(names[byte] for byte in piece.encode()) for piece in script] for name, script in scripts.items()
    }
    pieces = [piece for line in lines.values() for piece in line]
    assert len({*pieces}) == len(pieces), "each piece comes once: what follows depends on it alone"
    marks = {name: f"<|{name}|>" for name in scripts}
    kinds = dict.fromkeys([*usual, *pieces], _NORMAL) | dict.fromkeys([*marks.values(), _START, _END], _CONTROL)
    places = {token: place for place, token in enumerate(kinds)}
    drawn = np.random.default_rng(0)
    of_token = drawn.standard_normal((len(kinds), _WIDTH))
    of_token /= np.linalg.norm(of_token, axis=1, keepdims=True)
    follows = np.zeros_like(of_token)
    for name, line in lines.items():
        for before, token in pairwise([marks[name], *line, _END]):
            follows[places[token]] += of_token[places[before]]
    writer = _writer(path, kinds, merges)
    writer.add_chat_template(CHATML)
    # nothing but the last token counts
    weights = {name: np.zeros(shape) for name, shape in _shapes(len(kinds)).items()}
    _write(writer, {**weights, "token_embd": of_token, "output": 8 * follows})
    return path


_EXPORT = """
import sys
import openvino_genai as genai
scheduler = genai.SchedulerConfig()
scheduler.num_kv_blocks = 4
genai.ContinuousBatchingPipeline(sys.argv[1], scheduler, "CPU", {"enable_save_ov_model": True})
"""


def write_directory(directory: Path) -> None:
    """The same model as `optimum-cli` leaves one: in OpenVINO's format, beside its tokenizer and configuration"""
    path = write_model(directory / "model.gguf")
    subprocess.run([sys.executable, "-c", _EXPORT, str(path)], check=True)
    path.unlink()
    _tokenizer().save(str(directory / "tokenizer.json"))
    said = {
        "model_type": "llama",
        "hidden_size": _WIDTH,
        "max_position_embeddings": CONTEXT,
        "num_attention_heads": _HEADS,
        "num_hidden_layers": _LAYERS,
        "num_key_value_heads": _HEADS // 2,
        "vocab_size": END_ID + 1,
        "eos_token_id": END_ID,
    }
    (directory / "config.json").write_text(json.dumps(said))


_BARE = """
import json, sys
import numpy as np, openvino as ov, openvino_genai as genai
path, properties, orders = json.loads(sys.argv[1])
scheduler = genai.SchedulerConfig()
scheduler.num_kv_blocks, scheduler.max_num_batched_tokens = 256, 128
pipeline = genai.ContinuousBatchingPipeline(path, scheduler, "CPU", properties)
answers = []
for number, (ids, settings) in enumerate(orders):
    config = genai.GenerationConfig()
    for name, value in settings.items():
        setattr(config, name, set(value) if name == "stop_token_ids" else value)
    handle = pipeline.add_request(number, ov.Tensor(np.array([ids], np.int64)), config)
    tokens = []
    while pipeline.has_non_finished_requests():
        pipeline.step()
        if handle.can_read():
            tokens += handle.read()[0].generated_ids
    answers.append(tokens)
print(json.dumps(answers))
"""


def bare(path: Path, *orders: tuple[Sequence[int], Mapping[str, object]]) -> list[list[int]]:
    """What the pipeline answers by itself, one prompt after the other, in 32 bits and in a process of its own"""
    exact = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
    order = json.dumps([str(path), exact, [[list(ids), settings] for ids, settings in orders]])
    done = subprocess.run([sys.executable, "-c", _BARE, order], stdout=subprocess.PIPE, text=True, check=True)
    answers: list[list[int]] = json.loads(done.stdout.splitlines()[-1])
    return answers


def ids_of(text: str) -> list[int]:
    """The tokens of a text, by the library of Python"""
    return list(_tokenizer().encode(text, add_special_tokens=False).ids)


def text_of(ids: Sequence[int]) -> str:
    """The text of tokens, all bytes taken together"""
    tokens, _ = _vocabulary()
    bytes_of = {name: byte for byte, name in enumerate(byte_names())}
    known = [tokens[number] for number in ids if number < len(tokens)]
    return bytes(bytes_of[name] for token in known for name in token).decode("utf-8", "replace")


@cache
def _tokenizer() -> Tokenizer:
    tokens, merges = _vocabulary()
    vocabulary = {token: number for number, token in enumerate(tokens)}
    made = Tokenizer(BPE(vocab=vocabulary, merges=[(one, other) for one, other in map(str.split, merges)]))
    made.pre_tokenizer = ByteLevel(add_prefix_space=False)
    made.decoder = ByteLevelDecoder()
    made.add_special_tokens([_START, _END])
    return made
