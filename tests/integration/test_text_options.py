"""What files and parameters say of a model of texts: whether it is one, pooling, scores, lengths, names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from runners import Engine, EngineOptions, InvalidInput, ModelOptions
from tests import models, texts
from tests.texts import answer, embedding, hidden, network, normal, parameter, write

if TYPE_CHECKING:
    from pathlib import Path

    import onnx


EXPLICIT = EngineOptions(models=ModelOptions(control="explicit"))


def refusal(folder: Path) -> str:
    with Engine(folder, options=EngineOptions(exit_on_error=False)) as engine:
        return str(engine.failures["m"])


def test_a_tokenizer_beside_a_network_is_enough(tmp_path: Path) -> None:
    write(tmp_path)
    with Engine(tmp_path) as engine:
        about = engine.get_model_metadata("m")
        assert about["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1, 1]}]
        assert about["outputs"] == [{"name": "embedding", "datatype": "FP32", "shape": [-1, texts.WIDTH]}]
        for text in ("w1", "w1 w2 nobody", "", "W3 " * 100):
            np.testing.assert_allclose(answer(engine, text)[0], embedding(text), atol=1e-6)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("cls", lambda rows: rows[0]),
        ("max", lambda rows: rows.max(axis=0)),
        ("last", lambda rows: rows[-1]),
        ("mean", lambda rows: rows.mean(axis=0)),
    ],
)
def test_pooling_is_that_of_the_files_or_of_the_configuration(tmp_path: Path, mode: str, expected: Any) -> None:  # noqa: ANN401 - a function
    written = "lasttoken" if mode == "last" else f"{mode}_token" if mode == "cls" else f"{mode}_tokens"
    pooling = {
        f"pooling_mode_{written}": True,
        "pooling_mode_mean_sqrt_len_tokens": False,
        "word_embedding_dimension": 4,
    }
    modules = [{"type": f"sentence_transformers.models.{kind}"} for kind in ("Transformer", "Pooling")]
    write(tmp_path / "files", Pooling=pooling, modules=modules)
    write(tmp_path / "parameters", text=parameter("pooling", mode) + parameter("activation", "none"))
    for folder in ("files", "parameters"):
        with Engine(tmp_path / folder) as engine:
            np.testing.assert_allclose(answer(engine, "w1 w2 w3")[0], expected(hidden("w1 w2 w3")), atol=1e-6)


def test_the_modules_say_whether_vectors_have_the_length_one(tmp_path: Path) -> None:
    kinds = ("Transformer", "Pooling", "Normalize")
    write(tmp_path, modules=[{"type": f"sentence_transformers.models.{kind}"} for kind in kinds])
    with Engine(tmp_path) as engine:
        assert np.linalg.norm(answer(engine, "w1 w2")[0]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"modules": [{"type": "sentence_transformers.models.Dense"}]}, "has a module Dense, which is not supported"),
        (
            {"Pooling": {"pooling_mode_weightedmean_tokens": True}},
            "wants pooling_mode_weightedmean_tokens, expected one",
        ),
        (
            {"Pooling": {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True}},
            "wants cls and max, expected one",
        ),
        ({"Pooling": {"pooling_mode": "attention"}}, "wants attention, expected one of"),
        ({"Pooling": {"word_embedding_dimension": 4}}, "wants nothing, expected one of"),
        ({"tokenizer": {}}, "its tokenizer.json cannot be used: "),
        ({"tokenizer": texts.tokenizer(longest=None)}, "nothing says how many tokens a text may have"),
    ],
)
def test_what_is_not_supported_is_named(tmp_path: Path, files: dict[str, Any], reason: str) -> None:
    write(tmp_path, **files)
    assert reason in refusal(tmp_path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (parameter("pooling", "sum"), "expected one of mean, cls, max, last, none, got 'sum'"),
        (parameter("texts", "perhaps"), "expected 'auto', 'no' or 'yes', got 'perhaps'"),
        (parameter("activation", "relu"), "expected one of none, normalize, sigmoid, softmax, got 'relu'"),
        (parameter("max_tokens", "many"), "expected a non-negative integer"),
    ],
)
def test_wrong_parameters_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    write(tmp_path, text=text)
    assert reason in refusal(tmp_path)


def test_a_network_of_other_inputs_is_refused_with_what_it_takes(tmp_path: Path) -> None:
    write(tmp_path, made=models.add_sub(("batch", 4), "FP32"), text=parameter("texts", "yes"))
    assert "the network takes 'INPUT0', expected input_ids, attention_mask, token_type_ids" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({}, parameter("max_tokens", 5)),
        ({"sentence_bert_config": {"max_seq_length": 5, "do_lower_case": False}}, None),
        ({"tokenizer_config": {"model_max_length": 5}}, None),
        ({"tokenizer": texts.tokenizer(longest=5), "tokenizer_config": {"model_max_length": 10**30}}, None),
    ],
)
def test_how_long_a_text_may_be_is_stated_in_one_of_several_places(
    tmp_path: Path, files: dict[str, Any], text: str | None
) -> None:
    write(tmp_path, text=text, **files)
    long = "w1 w2 w3 w4 w5 w6"
    with Engine(tmp_path) as engine:
        np.testing.assert_allclose(answer(engine, long)[0], embedding(long, 5), atol=1e-6)


def test_a_network_that_answers_texts_needs_no_pooling(tmp_path: Path) -> None:
    write(tmp_path, made=network("texts"))
    with Engine(tmp_path) as engine:
        expected = normal(texts.VECTORS[texts.tokens("w1 w2")].sum(axis=0))
        np.testing.assert_allclose(answer(engine, "w1 w2")[0], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("classes", "config", "activate"),
    [
        (3, {}, lambda logits: np.exp(logits) / np.exp(logits).sum()),
        (3, {"problem_type": "multi_label_classification"}, lambda logits: 1 / (1 + np.exp(-logits))),
        (3, {"problem_type": "regression"}, lambda logits: logits),
        (1, {}, lambda logits: 1 / (1 + np.exp(-logits))),
    ],
)
def test_classes_have_scores(tmp_path: Path, classes: int, config: dict[str, object], activate: Any) -> None:  # noqa: ANN401 - a function
    write(tmp_path, made=network("scores", classes), config=config)
    with Engine(tmp_path) as engine:
        logits = texts.VECTORS[texts.tokens("w1 w2")].sum(axis=0) @ texts.CLASSES[:, :classes]
        np.testing.assert_allclose(answer(engine, "w1 w2", output="scores")[0], activate(logits), atol=1e-5)


def test_a_configuration_may_state_it(tmp_path: Path) -> None:
    tensors = (
        'input { name: "text" data_type: TYPE_STRING dims: [ %s ] }\n'
        'output { name: "v" data_type: TYPE_FP32 dims: [ %s ] }\n'
    )
    write(tmp_path / "batches", text="max_batch_size: 8\n" + tensors % ("1", "4"))
    write(tmp_path / "none", text="max_batch_size: 0\n" + tensors % ("-1", "-1, 4"))
    expected = np.stack([embedding("w1"), embedding("w2 w3")])
    with Engine(tmp_path / "batches") as engine:
        np.testing.assert_allclose(answer(engine, "w1", "w2 w3", output="v"), expected, atol=1e-6)
        with pytest.raises(InvalidInput, match="batch"):
            answer(engine, *["w1"] * 9, output="v")
    with Engine(tmp_path / "none") as engine:
        answered = engine.infer("m", np.array(["w1", "w2 w3"], np.object_))["v"]
        np.testing.assert_allclose(answered, expected, atol=1e-6)
        assert engine.infer("m", np.array([], np.object_))["v"].shape == (0, 4)


@pytest.mark.parametrize("stated", [parameter("texts", "no"), "ids"])
def test_a_network_may_stay_one_of_tokens(tmp_path: Path, stated: str) -> None:
    ids = (
        "".join(
            f'input {{ name: "{name}" data_type: TYPE_INT64 dims: [ -1 ] }}\n'
            for name in ("input_ids", "attention_mask")
        )
        + 'output { name: "last_hidden_state" data_type: TYPE_FP32 dims: [ -1, 4 ] }\nmax_batch_size: 4\n'
    )
    write(tmp_path, text=ids if stated == "ids" else stated)
    made = np.array([texts.tokens("w1 w2")])
    with Engine(tmp_path) as engine:
        answered = engine.infer("m", {"input_ids": made, "attention_mask": np.ones_like(made)})
        np.testing.assert_allclose(answered["last_hidden_state"][0], hidden("w1 w2"), atol=1e-6)


@pytest.mark.parametrize(
    "made",
    [
        models.add_sub(("batch", 4), "FP32"),
        models.identity("INT64", (1, 16)),
        network("words"),
    ],
    ids=["others", "fixed", "more"],
)
def test_a_network_that_takes_something_else_is_served_as_before(tmp_path: Path, made: onnx.ModelProto) -> None:
    if made.graph.input[0].name == "input_ids":
        made.graph.input.append(models.tensor("pixel_values", "FP32", ("batch", 3)))
    write(tmp_path, made=made)
    with Engine(tmp_path) as engine:
        about = engine.get_model_metadata("m")
        assert [tensor["name"] for tensor in about["inputs"]] == [tensor.name for tensor in made.graph.input]


def test_a_pooling_may_lie_elsewhere_and_be_a_name(tmp_path: Path) -> None:
    modules = [{"type": "sentence_transformers.models.Pooling", "path": "2_Pooling"}]
    folder = write(tmp_path, modules=modules)
    (folder / "1" / "2_Pooling").mkdir()
    (folder / "1" / "2_Pooling" / "config.json").write_text('{"pooling_mode": "lasttoken"}')
    with Engine(tmp_path) as engine:
        np.testing.assert_allclose(answer(engine, "w1 w2")[0], hidden("w1 w2")[-1], atol=1e-6)
