"""Pairs of texts, as cross-encoders take them, and what else a request may say: prompts, activations."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from tokenizers import Tokenizer, decoders, pre_tokenizers, processors, trainers
from tokenizers import models as token_models

from runners import Engine, EngineOptions, InvalidInput
from tests import models, texts
from tests.texts import asked, pair_scores, parameter, sigmoid, write

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

LONGEST = 24


def score(engine: Engine, first: list[str], second: list[str]) -> NDArray[np.float32]:
    return np.asarray(engine.infer("m", {"text": asked(first), "text_pair": asked(second)})["scores"])


def test_scores_are_of_two_texts_or_of_one(tmp_path: Path) -> None:
    write(tmp_path, made=texts.network("pairs", 1))
    first, second = texts.some(60, 1), texts.some(60, 2)
    with Engine(tmp_path) as engine:
        names = [one["name"] for one in engine.get_model_metadata("m")["inputs"]]
        answers = score(engine, first, second)
        alone = np.asarray(engine.infer("m", asked(["w1 w2"]))["scores"])
    assert names == ["text", "text_pair"]
    expected = np.stack([sigmoid(pair_scores(*pair)) for pair in zip(first, second, strict=True)])
    np.testing.assert_allclose(answers, expected, atol=1e-6)
    np.testing.assert_allclose(
        alone[0], sigmoid(texts.VECTORS[texts.tokens("w1 w2")].sum(axis=0) @ texts.CLASSES[:, :1]), atol=1e-6
    )


def test_long_texts_of_a_pair_are_cut_as_transformers_does(tmp_path: Path) -> None:
    write(tmp_path, made=texts.network("pairs", 1), text=parameter("activation", "none"))
    lengths = [(1, 40), (40, 1), (40, 40), (6, 40), (7, 7), (6, 7), (8, 6), (0, 40), (40, 0), (5000, 5000)]
    pairs = [(" ".join(["w1", *["w2"] * first]), " ".join(["w3", *["w4"] * second])) for first, second in lengths]
    with Engine(tmp_path) as engine:
        answers = score(engine, *map(list, zip(*pairs, strict=True)))
    np.testing.assert_allclose(answers, np.stack([pair_scores(*pair) for pair in pairs]), atol=1e-4)


def test_embeddings_take_no_pairs(tmp_path: Path) -> None:
    write(tmp_path)
    with (
        Engine(tmp_path) as engine,
        pytest.raises(InvalidInput, match="got 2 inputs for model 'm'"),
    ):
        engine.infer("m", {"text": asked(["w1"]), "text_pair": asked(["w1"])})


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ([("text", "STRING", "")], ""),
        ([("text", "STRING", ""), ("text_pair", "STRING", "optional: true")], ""),
        ([("text", "STRING", ""), ("text_pair", "INT32", "")], "expects datatype TYPE_INT32"),
        ([("text", "STRING", "optional: true")], "optional input 'text'"),
    ],
)
def test_inputs_may_be_stated(tmp_path: Path, inputs: list[tuple[str, str, str]], reason: str) -> None:
    listed = "".join(
        f'input {{ name: "{name}" data_type: TYPE_{kind} dims: [1] {more} }} ' for name, kind, more in inputs
    )
    stated = f'max_batch_size: 8 {listed} output {{ name: "scores" data_type: TYPE_FP32 dims: [1] }}'
    write(tmp_path, made=texts.network("pairs", 1), text=stated)
    with Engine(tmp_path, options=EngineOptions(exit_on_error=False)) as engine:
        if reason:
            assert reason in str(engine.failures["m"])
        else:
            assert np.asarray(engine.infer("m", asked(["w1"]))["scores"]).shape == (1, 1)


def byte_level() -> Tokenizer:
    made = Tokenizer(token_models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<s>", "</s>", "<pad>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    made.train_from_iterator(["the cat sat on the mat, naïve café – and so on"] * 20, trainer)
    made.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0), trim_offsets=True)
    return made


def pieces() -> Tokenizer:
    made = Tokenizer(token_models.Unigram())
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=80, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>")
    made.train_from_iterator(["the cat sat on the mat, and so on and so forth"] * 20, trainer)
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B:1 </s>:1", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return made


def bare() -> Tokenizer:
    made = Tokenizer(token_models.WordLevel({"[UNK]": 0, "the": 1, "cat": 2, "sat": 3}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return made


def counting() -> Any:  # noqa: ANN401 - a network
    """Sums of the numbers of tokens, of those of the second text, and how many there are"""
    names = ("input_ids", "attention_mask", "token_type_ids")
    ints = [models.tensor(name, "INT64", ("batch", "length")) for name in names]
    nodes = [
        helper.make_node("Mul", ["input_ids", "attention_mask"], ["ids"]),
        helper.make_node("Mul", ["ids", "token_type_ids"], ["second"]),
        helper.make_node("ReduceSum", ["ids", "along"], ["a"], keepdims=1),
        helper.make_node("ReduceSum", ["second", "along"], ["b"], keepdims=1),
        helper.make_node("ReduceSum", ["attention_mask", "along"], ["c"], keepdims=1),
        helper.make_node("Concat", ["a", "b", "c"], ["all"], axis=1),
        helper.make_node("Cast", ["all"], ["logits"], to=models.DATATYPES["FP32"]),
    ]
    output = models.tensor("logits", "FP32", ("batch", 3))
    return models.model(nodes, ints, [output], [numpy_helper.from_array(np.array([1]), "along")])


@pytest.mark.parametrize("make", [byte_level, pieces, bare])
def test_every_kind_of_tokenizer_reads_as_the_library_of_python_does(tmp_path: Path, make: Any) -> None:  # noqa: ANN401 - a function
    made = make()
    files = {"tokenizer": json.loads(made.to_str())}
    write(tmp_path, made=counting(), text=parameter("activation", "none") + parameter("max_tokens", LONGEST), **files)
    made.enable_truncation(LONGEST)
    random = np.random.default_rng(3)
    words = ["the", "cat", "sat", "naïve", "🙂", "  ", "café–", "x" * 30, "\n"]
    given = [" ".join(random.choice(words, random.integers(1, 40))) for _ in range(120)]
    first, second = given[:60], given[60:]

    def numbers(encoded: Any) -> list[int]:  # noqa: ANN401 - of the tokenizer
        ids, types = np.array(encoded.ids), np.array(encoded.type_ids)
        return [int(ids.sum()), int((ids * types).sum()), len(ids)]

    with Engine(tmp_path) as engine:
        alone = np.asarray(engine.infer("m", asked(first))["scores"])
        pairs = score(engine, first, second)
    assert alone.tolist() == [numbers(made.encode(text)) for text in first]
    assert pairs.tolist() == [numbers(made.encode(*pair)) for pair in zip(first, second, strict=True)]


PROMPTS = {"prompts": {"query": "w7 ", "document": "w8 w9 "}, "default_prompt_name": None}


@pytest.mark.parametrize(
    ("text", "stated", "asked_for", "expected"),
    [
        ("", {}, None, ""),
        ("", {}, "query", "w7 "),
        ("", {"default_prompt_name": "document"}, None, "w8 w9 "),
        ("", {"default_prompt_name": "document"}, "query", "w7 "),
        (parameter("prompt_name", "query"), {}, None, "w7 "),
        (parameter("prompt", "w5 "), {"default_prompt_name": "query"}, None, "w5 "),
    ],
)
def test_a_prompt_is_put_before_each_text(
    tmp_path: Path, text: str, stated: dict[str, str], asked_for: str | None, expected: str
) -> None:
    write(tmp_path, text=text, config_sentence_transformers=PROMPTS | stated)
    parameters = {"prompt_name": asked_for} if asked_for else {}
    with Engine(tmp_path) as engine:
        answers = np.asarray(engine.infer("m", asked(["w1", ""]), parameters=parameters)["embedding"])
        with pytest.raises(InvalidInput, match="has no prompt 'other', expected one of: document, query"):
            engine.infer("m", asked(["w1"]), parameters={"prompt_name": "other"})
    np.testing.assert_allclose(answers, np.stack([texts.embedding(expected + one) for one in ("w1", "")]), atol=1e-6)


def test_a_request_says_what_becomes_of_the_numbers(tmp_path: Path) -> None:
    write(tmp_path)
    with Engine(tmp_path) as engine:
        raw = np.asarray(engine.infer("m", asked(["w1 w2"]), parameters={"activation": "none"})["embedding"])
        with pytest.raises(InvalidInput, match="parameter 'activation': unknown variant `tanh`"):
            engine.infer("m", asked(["w1"]), parameters={"activation": "tanh"})
    np.testing.assert_allclose(raw[0], texts.hidden("w1 w2").mean(axis=0), atol=1e-6)


def test_letters_become_small_ones_where_the_files_say_so(tmp_path: Path) -> None:
    plain = texts.tokenizer() | {"normalizer": None}
    write(tmp_path / "small", tokenizer=plain, sentence_bert_config={"do_lower_case": True})
    write(tmp_path / "as_they_are", tokenizer=plain, sentence_bert_config={"do_lower_case": False})
    found = {}
    for folder in ("small", "as_they_are"):
        with Engine(tmp_path / folder) as engine:
            found[folder] = texts.answer(engine, "W1")[0]
    np.testing.assert_allclose(found["small"], texts.embedding("w1"), atol=1e-6)
    np.testing.assert_allclose(found["as_they_are"], texts.embedding("nobody"), atol=1e-6)


def test_an_answer_says_how_many_tokens_its_texts_had(tmp_path: Path) -> None:
    write(tmp_path)
    with Engine(tmp_path) as engine:
        result = engine.infer("m", asked(["w1 w2", "", "w3"]))
    assert result.parameters["input_tokens"] == 4 + 2 + 3
