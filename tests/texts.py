"""Small networks of tokens and their tokenizers, and what texts have to be answered by them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper
from tokenizers import Tokenizer

from tests import models

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from runners import Engine

WIDTH: Final = 4
LONGEST: Final = 16
SPECIAL: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS: Final = tuple(f"w{number}" for number in range(50))
_RANDOM: Final = np.random.default_rng(7)
VECTORS: Final[NDArray[np.float32]] = _RANDOM.standard_normal((len(SPECIAL) + len(WORDS), WIDTH)).astype(np.float32)
CLASSES: Final[NDArray[np.float32]] = _RANDOM.standard_normal((WIDTH, 3)).astype(np.float32)


def tokenizer(*, special: bool = True, longest: int | None = LONGEST) -> dict[str, Any]:
    """Words between a beginning and an end."""
    cut = {"direction": "Right", "max_length": longest, "strategy": "LongestFirst", "stride": 0}
    return {
        "version": "1.0",
        "truncation": cut if longest else None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]} if special else None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: number for number, word in enumerate((*SPECIAL, *WORDS))},
            "unk_token": "[UNK]",
        },
    }


def network(kind: str = "words", classes: int = 3) -> onnx.ModelProto:
    """
    The vector of each token, and a tenth of the sum of all of its text: what stands behind the end of a text has to be
    hidden. Of the kind "texts" it is that sum alone, and of the kind "scores" one of classes; of the kind "pairs" it is
    the same, and tokens of a second text count twice.
    """
    names = ("input_ids", "attention_mask", "token_type_ids")[: 3 if kind == "pairs" else 2]
    ints = [models.tensor(name, "INT64", ("batch", "length")) for name in names]
    constants = {"vectors": VECTORS, "tenth": np.float32(0.1), "last": np.array([2]), "along": np.array([1])}
    nodes = [
        helper.make_node("Gather", ["vectors", "input_ids"], ["each"]),
        helper.make_node("Unsqueeze", ["attention_mask", "last"], ["mask"]),
        helper.make_node("Cast", ["mask"], ["there"], to=models.DATATYPES["FP32"]),
        helper.make_node("Mul", ["each", "there"], ["shown"]),
    ]
    if kind == "pairs":
        nodes[-1] = helper.make_node("Mul", ["each", "there"], ["once"])
        nodes += [
            helper.make_node("Unsqueeze", ["token_type_ids", "last"], ["types"]),
            helper.make_node("Cast", ["types"], ["second"], to=models.DATATYPES["FP32"]),
            helper.make_node("Mul", ["once", "second"], ["again"]),
            helper.make_node("Add", ["once", "again"], ["shown"]),
        ]
    if kind == "words":
        nodes += [
            helper.make_node("ReduceSum", ["shown", "along"], ["sum"], keepdims=1),
            helper.make_node("Mul", ["sum", "tenth"], ["part"]),
            helper.make_node("Add", ["each", "part"], ["last_hidden_state"]),
        ]
        output = models.tensor("last_hidden_state", "FP32", ("batch", "length", WIDTH))
    elif kind == "texts":
        nodes.append(helper.make_node("ReduceSum", ["shown", "along"], ["sentence_embedding"], keepdims=0))
        output = models.tensor("sentence_embedding", "FP32", ("batch", WIDTH))
    else:
        constants["classes"] = CLASSES[:, :classes]
        nodes += [
            helper.make_node("ReduceSum", ["shown", "along"], ["sum"], keepdims=0),
            helper.make_node("MatMul", ["sum", "classes"], ["logits"]),
        ]
        output = models.tensor("logits", "FP32", ("batch", classes))
    used = {name for node in nodes for name in node.input}
    kept = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items() if name in used]
    return models.model(nodes, ints, [output], kept)


def write(
    repository: Path,
    name: str = "m",
    made: onnx.ModelProto | None = None,
    text: str | None = None,
    **files: object,
) -> Path:
    """A model of texts; `files` are JSON beside it, `Pooling` for what lies in a directory of its own."""
    folder = models.write(repository, name, made or network(), text)
    (folder / "1" / "tokenizer.json").write_text(json.dumps(files.pop("tokenizer", tokenizer())))
    for file, content in files.items():
        path = folder / "1" / ("1_Pooling/config.json" if file == "Pooling" else f"{file}.json")
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))
    return folder


def tokens(text: str, longest: int = LONGEST) -> list[int]:
    made = Tokenizer.from_str(json.dumps(tokenizer(longest=longest)))
    ids: list[int] = made.encode(text).ids
    return ids


def hidden(text: str, longest: int = LONGEST) -> NDArray[np.float32]:
    """What the network gives for each token."""
    each = VECTORS[tokens(text, longest)]
    shown: NDArray[np.float32] = each + np.float32(0.1) * each.sum(axis=0, keepdims=True)
    return shown


def pair_scores(first: str, second: str, classes: int = 1, longest: int = LONGEST) -> NDArray[np.float32]:
    """What the network of the kind "pairs" says of two texts."""
    made = Tokenizer.from_str(json.dumps(tokenizer(longest=longest))).encode(first, second)
    weights = 1 + np.array(made.type_ids, np.float32)[:, None]
    scores: NDArray[np.float32] = ((VECTORS[made.ids] * weights).sum(axis=0) @ CLASSES[:, :classes]).astype(np.float32)
    return scores


def sigmoid(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(1 / (1 + np.exp(-scores)), np.float32)


def normal(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    made: NDArray[np.float32] = vector / np.linalg.norm(vector)
    return made


def embedding(text: str, longest: int = LONGEST) -> NDArray[np.float32]:
    """The mean of all tokens, of length 1."""
    return normal(hidden(text, longest).mean(axis=0))


def asked(texts: Sequence[str | bytes]) -> NDArray[Any]:
    return np.array([[text] for text in texts], np.object_).reshape(-1, 1)


def some(count: int, seed: int = 0) -> list[str]:
    """Texts of many lengths."""
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(0, LONGEST))) for _ in range(count)]


def parameter(key: str, value: object) -> str:
    return f'parameters {{ key: "kushi.{key}" value {{ string_value: "{value}" }} }}\n'


def answer(engine: Engine, *given: str, output: str = "embedding") -> NDArray[np.float32]:
    return np.asarray(engine.infer("m", asked(given))[output])
