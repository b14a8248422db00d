"""Models of texts: a network of tokens with its tokenizer.json takes texts, and answers what a script would."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient as GrpcClient
from tritonclient.grpc import InferInput as GrpcInput
from tritonclient.http import InferenceServerClient, InferInput

from runners import Engine, EngineFailed, EngineOptions, InvalidInput, KushiError, ModelOptions
from tests import models, texts
from tests.integration.grpc_doors import port_of
from tests.integration.test_docs_python import blocks, environment
from tests.serving import ROOT
from tests.texts import asked, embedding, hidden, network, normal, some, write

if TYPE_CHECKING:
    from pathlib import Path

    import onnx
    from numpy.typing import NDArray

    from tests.conftest import StartServer

EXPLICIT = EngineOptions(models=ModelOptions(control="explicit"))


def parameter(key: str, value: object) -> str:
    return f'parameters {{ key: "kushi.{key}" value {{ string_value: "{value}" }} }}\n'


def answer(engine: Engine, *given: str, output: str = "embedding") -> NDArray[np.float32]:
    return np.asarray(engine.infer("m", asked(given))[output])


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


def test_each_text_of_a_request_has_its_answer_in_its_place(tmp_path: Path) -> None:
    write(tmp_path)
    given = some(300)
    with Engine(tmp_path) as engine:
        answers = answer(engine, *given)
    np.testing.assert_allclose(answers, np.stack([embedding(text) for text in given]), atol=1e-6)


def test_texts_of_many_requests_meet_and_are_told_apart(tmp_path: Path) -> None:
    write(tmp_path, text=parameter("batch_tokens", 64))
    wrong: list[str] = []

    def ask(engine: Engine, seed: int) -> None:
        random = np.random.default_rng(seed)
        for turn in range(20):
            given = some(int(random.choice([1, 1, 1, 3, 40])), seed * 100 + turn)
            expected = np.stack([embedding(text) for text in given])
            if not np.allclose(answer(engine, *given), expected, atol=1e-6):
                wrong.append(f"{seed}, {turn}")

    with Engine(tmp_path) as engine:
        threads = [threading.Thread(target=ask, args=(engine, seed)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (statistics,) = engine.statistics()["model_stats"]
    assert not wrong
    assert statistics["inference_stats"]["success"]["count"] == 8 * 20


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


def test_what_is_no_text_is_refused_and_others_are_answered(tmp_path: Path) -> None:
    write(tmp_path)
    with Engine(tmp_path) as engine:
        with pytest.raises(InvalidInput, match="a text is no UTF-8: invalid utf-8 sequence"):
            engine.infer("m", asked([b"w1", b"\xff"]))
        np.testing.assert_allclose(answer(engine, "w1")[0], embedding("w1"), atol=1e-6)


def test_text_without_tokens_is_refused(tmp_path: Path) -> None:
    write(tmp_path, tokenizer=texts.tokenizer(special=False))
    with Engine(tmp_path) as engine:
        with pytest.raises(InvalidInput, match="a text has no tokens"):
            answer(engine, "")
        assert answer(engine, "w1").shape == (1, 4)


def test_a_model_that_goes_has_answered_all_before(tmp_path: Path) -> None:
    write(tmp_path, text=parameter("batch_tokens", 32))
    given = some(400)
    expected = np.stack([embedding(text) for text in given])
    outcomes: list[bool] = []

    def ask(engine: Engine) -> None:
        answers = (answer(engine, *given) for _ in range(10))
        outcomes.extend(np.allclose(each, expected, atol=1e-6) for each in answers)

    with Engine(tmp_path, options=EXPLICIT) as engine:
        engine.load_model("m")
        threads = [threading.Thread(target=ask, args=(engine,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            engine.load_model("m")
        for thread in threads:
            thread.join()
        engine.unload_model("m")
        with pytest.raises(KushiError):
            answer(engine, "w1")
    assert outcomes == [True] * 40


def test_clients_of_triton_send_texts(tmp_path: Path, start_server: StartServer) -> None:
    write(tmp_path)
    server = start_server(tmp_path)
    given = some(5)
    expected = np.stack([embedding(text) for text in given])
    with InferenceServerClient(f"{server.http[0]}:{server.http[1]}") as http:
        text = InferInput("text", [5, 1], "BYTES")
        for binary in (True, False):
            text.set_data_from_numpy(asked(given), binary_data=binary)
            np.testing.assert_allclose(http.infer("m", [text]).as_numpy("embedding"), expected, atol=1e-6)
    with GrpcClient(f"127.0.0.1:{port_of(server)}") as grpc:
        sent = GrpcInput("text", [5, 1], "BYTES")
        sent.set_data_from_numpy(asked(given))
        np.testing.assert_allclose(grpc.infer("m", [sent]).as_numpy("embedding"), expected, atol=1e-6)


def test_the_program_of_the_page_and_its_request(tmp_path: Path, start_server: StartServer) -> None:
    page = (ROOT / "docs" / "texts.md").read_text(encoding="utf-8")
    write(tmp_path / "my_models", "sentences")
    (program,) = blocks(page, "python")
    command = [sys.executable, "-c", f"{program}print(vectors.shape)"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "(2, 4)\n"), done.stderr
    _, curl = blocks(page, "sh")
    server = start_server(tmp_path / "my_models")
    asking = shlex.split(curl.replace("localhost:8000", f"{server.http[0]}:{server.http[1]}"))
    answered = subprocess.run(asking, capture_output=True, text=True, check=True).stdout
    assert json.loads(answered)["outputs"][0]["shape"] == [2, 4]


def test_a_text_that_the_network_cannot_take_fails_alone(tmp_path: Path) -> None:
    # the last word has a number for which the network has no vector
    longer = texts.tokenizer()
    longer["model"]["vocab"]["beyond"] = len(texts.VECTORS)
    write(tmp_path, text=parameter("batch_tokens", 64), tokenizer=longer)
    given = some(40)
    expected = np.stack([embedding(text) for text in given])
    outcomes: list[str] = []

    def ask(engine: Engine, number: int) -> None:
        for _ in range(20):
            if number == 0:
                with pytest.raises(EngineFailed, match=r"out of data bounds|idx="):
                    answer(engine, "w1 beyond w2")
                outcomes.append("refused")
            else:
                outcomes.append("right" if np.allclose(answer(engine, *given), expected, atol=1e-6) else "wrong")

    with Engine(tmp_path) as engine:
        threads = [threading.Thread(target=ask, args=(engine, number)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert Counter(outcomes) == {"refused": 20, "right": 60}


def test_many_texts_are_answered_while_requests_of_few_keep_coming(tmp_path: Path) -> None:
    write(tmp_path, text=parameter("batch_tokens", 16) + "instance_group { kind: KIND_CPU count: 1 }")
    is_over = threading.Event()

    def flood(engine: Engine) -> None:
        while not is_over.is_set():
            answer(engine, *["w1 w2 w3"] * 8)

    with Engine(tmp_path) as engine:
        threads = [threading.Thread(target=flood, args=(engine,)) for _ in range(16)]
        for thread in threads:
            thread.start()
        try:
            # without a turn of theirs, they would wait for the end of the flood
            assert answer(engine, *some(200)).shape == (200, 4)
        finally:
            is_over.set()
            for thread in threads:
                thread.join()


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


def test_instances_may_have_several_threads(tmp_path: Path) -> None:
    two = "instance_group { kind: KIND_CPU count: 2 }\n"
    threads = 'parameters { key: "intra_op_thread_count" value { string_value: "2" } }\n'
    write(tmp_path, text=two + threads)
    with Engine(tmp_path) as engine:
        np.testing.assert_allclose(answer(engine, "w1")[0], embedding("w1"), atol=1e-6)


def test_what_a_request_may_have_is_bounded(tmp_path: Path) -> None:
    tensors = (
        'input { name: "text" data_type: TYPE_STRING dims: [ -1 ] }\n'
        'output { name: "v" data_type: TYPE_FP32 dims: [ -1, 4 ] }\n'
    )
    write(tmp_path, text="max_batch_size: 0\n" + tensors)
    with Engine(tmp_path) as engine:
        with pytest.raises(InvalidInput, match="a request has 65537 texts, expected at most 65536"):
            engine.infer("m", np.full(65537, "w1", object))
        assert engine.infer("m", np.full(65536, "w1", object))["v"].shape == (65536, 4)


def test_a_pooling_may_lie_elsewhere_and_be_a_name(tmp_path: Path) -> None:
    modules = [{"type": "sentence_transformers.models.Pooling", "path": "2_Pooling"}]
    folder = write(tmp_path, modules=modules)
    (folder / "1" / "2_Pooling").mkdir()
    (folder / "1" / "2_Pooling" / "config.json").write_text('{"pooling_mode": "lasttoken"}')
    with Engine(tmp_path) as engine:
        np.testing.assert_allclose(answer(engine, "w1 w2")[0], hidden("w1 w2")[-1], atol=1e-6)


def test_what_has_been_taken_out_of_the_queue_ends_with_the_model(tmp_path: Path) -> None:
    write(tmp_path, text=parameter("batch_tokens", 16) + "instance_group { kind: KIND_CPU count: 1 }")
    outcomes: list[str] = []

    def ask(engine: Engine) -> None:
        try:
            outcomes.append(str(answer(engine, *some(1000)).shape))
        except KushiError as error:
            outcomes.append(type(error).__name__)

    engine = Engine(tmp_path)
    threads = [threading.Thread(target=ask, args=(engine,)) for _ in range(40)]
    for thread in threads:
        thread.start()
    engine.close()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 40
    assert {*outcomes} <= {"(1000, 4)", "ShuttingDown"}
