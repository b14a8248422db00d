"""Routes that clients of OpenAI, Cohere, vLLM and text-embeddings-inference know, over HTTP."""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests import texts
from tests.serving import Server
from tests.text_routes import CONFIG, RERANK, ask, refused, vectors
from tests.texts import embedding, pair_scores, parameter, sigmoid, write

if TYPE_CHECKING:
    from collections.abc import Iterator


LABELS = {"id2label": {"0": "good", "1": "bad", "2": "so so"}}

PYTHON = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy().reshape(-1)
            lengths = np.array([[len(text), 1] for text in texts], np.float32).reshape(-1, 2)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", lengths)]))
        return answers
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("repository")
    write(repository, "vectors", text=parameter("dimensions", "2, 3"), config_sentence_transformers=PROMPTS)
    write(repository, "small", text="max_batch_size: 4\n")
    short = "dynamic_batching { default_queue_policy { max_queue_size: 2 } }\n"
    write(repository, "short", text=f"max_batch_size: 1\n{short}")
    write(repository, "ranker", made=texts.network("pairs", 1))
    write(repository, "classes", made=texts.network("scores"), config=LABELS)
    model = repository / "lengths" / "1"
    model.mkdir(parents=True)
    (model / "model.py").write_text(PYTHON)
    (model.parent / "config.pbtxt").write_text(CONFIG)
    server = Server.start(repository)
    yield server
    server.stop()


PROMPTS = {"prompts": {"query": "w7 "}}


def test_embeddings_of_openai(server: Server) -> None:
    given = ["w1 w2", "", "W3 " * 100]
    answer = ask(server, "/v1/embeddings", model="vectors", input=given)
    assert list(answer) == ["object", "data", "model", "usage"]
    assert (answer["object"], answer["model"], answer["data"][0]["object"]) == ("list", "vectors", "embedding")
    assert answer["usage"] == {"prompt_tokens": 4 + 2 + 16, "total_tokens": 22}
    np.testing.assert_allclose(vectors(answer), np.stack([embedding(text) for text in given]), atol=1e-6)
    encoded = ask(server, "/v1/embeddings", model="vectors", input=given, encoding_format="base64", user="u")
    decoded = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in encoded["data"]]
    np.testing.assert_array_equal(np.stack(decoded), vectors(answer))
    single = ask(server, "/v1/embeddings", model="vectors", input=given[0], encoding_format="float")
    np.testing.assert_array_equal(vectors(single), vectors(answer)[:1])


def test_tokens_are_texts_as_well(server: Server) -> None:
    numbers = [len(texts.SPECIAL) + 1, len(texts.SPECIAL) + 2]
    # this tokenizer does not say which of its tokens are special ones: they are words of the text
    special = "[CLS] w1 w2 [SEP]"
    for given, expected in ((numbers, ["w1 w2"]), ([numbers, []], ["w1 w2", ""]), ([[2, *numbers, 3]], [special])):
        answer = ask(server, "/v1/embeddings", model="vectors", input=given)
        np.testing.assert_allclose(vectors(answer), np.stack([embedding(text) for text in expected]), atol=1e-6)
    refusals = (([10_000], "10000 is none of the 54 tokens"), ([5] * 17, "has 17 tokens, model 'vectors' takes 16"))
    for given, text in refusals:
        status, error = refused(server, "/v1/embeddings", {"model": "vectors", "input": given})
        assert status == 400
        assert text in error["message"]


def test_vectors_may_be_cut_where_the_model_says_so(server: Server) -> None:
    answer = ask(server, "/v1/embeddings", model="vectors", input=["w1 w2", "w3"], dimensions=2)
    expected = np.stack([texts.normal(embedding(text)[:2]) for text in ("w1 w2", "w3")])
    np.testing.assert_allclose(vectors(answer), expected, atol=1e-6)
    whole = ask(server, "/v1/embeddings", model="small", input="w1 w2", dimensions=texts.WIDTH)
    np.testing.assert_allclose(vectors(whole), [embedding("w1 w2")], atol=1e-6)
    for model, dimensions, text in (
        ("vectors", 1, "can be cut to 2, 3, not to 1"),
        ("vectors", 5, "gives 4 numbers for a text, and 5 are asked for"),
        ("small", 2, "cannot be cut: nothing says that it was made for that"),
        ("lengths", 1, "cannot be cut"),
        ("vectors", 0, "expected at least 1"),
    ):
        status, error = refused(server, "/v1/embeddings", {"model": model, "input": "w1", "dimensions": dimensions})
        assert status == 400
        assert text in error["message"]


def test_more_texts_than_the_model_takes_at_once(server: Server) -> None:
    given = texts.some(103)
    answer = ask(server, "/v1/embeddings", model="small", input=given)
    np.testing.assert_allclose(vectors(answer), np.stack([embedding(text) for text in given]), atol=1e-6)
    assert answer["usage"]["prompt_tokens"] == sum(len(texts.tokens(text)) for text in given)


def test_a_request_of_many_parts_does_not_fill_the_queue_by_itself(server: Server) -> None:
    assert len(ask(server, "/v1/embeddings", model="short", input=["w1"] * 50)["data"]) == 50


def test_no_texts_have_no_vectors(server: Server) -> None:
    assert ask(server, "/v1/embeddings", model="vectors", input=[])["data"] == []
    assert ask(server, "/embed", model="vectors", inputs=[]) == []
    assert ask(server, "/rerank", model="ranker", query="w1", documents=[])["results"] == []


def test_a_model_in_python_is_asked_in_the_same_way(server: Server) -> None:
    answer = ask(server, "/v1/embeddings", model="lengths", input=["a", "bcd"] * 5)
    assert vectors(answer).tolist() == [[1, 1], [3, 1]] * 5
    assert list(answer) == ["object", "data", "model"]
    for body, text in (
        ({"input": "a", "prompt_name": "query"}, "it knows no 'prompt_name'"),
        ({"input": [1, 2]}, "has no tokenizer of its own: it takes texts, and no tokens"),
    ):
        status, error = refused(server, "/v1/embeddings", {"model": "lengths", **body})
        assert (status, text in error["message"]) == (400, True)


def test_vectors_of_text_embeddings_inference(server: Server) -> None:
    given = ["w1 w2", "w3"]
    answer = ask(server, "/embed", model="vectors", inputs=given, truncate=True)
    np.testing.assert_allclose(answer, np.stack([embedding(text) for text in given]), atol=1e-6)
    raw = ask(server, "/embed", model="vectors", inputs="w1 w2", normalize=False)
    np.testing.assert_allclose(raw, [texts.hidden("w1 w2").mean(axis=0)], atol=1e-6)
    named = ask(server, "/embed", model="vectors", inputs=["w1"], prompt_name="query", dimensions=3)
    np.testing.assert_allclose(named, [texts.normal(embedding("w7 w1")[:3])], atol=1e-6)
    status, error = refused(server, "/embed", {"model": "vectors", "inputs": "w1", "truncate": False})
    assert (status, "'truncate' is false" in error["message"]) == (400, True)


DOCUMENTS = ["w1 w2", "w3", "w1 w2 w3 w4", ""]


def ranked() -> list[tuple[int, float]]:
    scores = [float(sigmoid(pair_scores("w5 w6", text))[0]) for text in DOCUMENTS]
    return sorted(enumerate(scores), key=lambda one: -one[1])


@pytest.mark.parametrize("path", RERANK)
def test_documents_are_ranked(server: Server, path: str) -> None:
    expected = ranked()
    given = [{"text": DOCUMENTS[0]}, *DOCUMENTS[1:]]
    answer = ask(server, path, model="ranker", query="w5 w6", documents=given, return_documents=True)
    assert [one["index"] for one in answer["results"]] == [index for index, _ in expected]
    np.testing.assert_allclose(
        [one["relevance_score"] for one in answer["results"]], [score for _, score in expected], atol=1e-6
    )
    assert [one["document"]["text"] for one in answer["results"]] == [DOCUMENTS[index] for index, _ in expected]
    count = sum(3 + 2 + len(text.split()) for text in DOCUMENTS)
    assert answer["usage"] == {"prompt_tokens": count, "total_tokens": count}
    assert answer["meta"] == {"api_version": {"version": "2"}, "tokens": {"input_tokens": count}}
    assert len(ask(server, path, model="ranker", query="w5", documents=DOCUMENTS, top_n=0)["results"]) == 4
    few = ask(server, path, model="ranker", query="w5 w6", documents=DOCUMENTS, top_n=2)
    assert few["results"] == [{key: one[key] for key in ("index", "relevance_score")} for one in answer["results"][:2]]


def test_texts_are_ranked_as_text_embeddings_inference_does(server: Server) -> None:
    expected = ranked()
    answer = ask(server, "/rerank", query="w5 w6", texts=DOCUMENTS, return_text=True, model="ranker")
    assert [(one["index"], one["text"]) for one in answer] == [(index, DOCUMENTS[index]) for index, _ in expected]
    np.testing.assert_allclose([one["score"] for one in answer], [score for _, score in expected], atol=1e-6)
    raw = ask(server, "/rerank", query="w5 w6", texts=DOCUMENTS, raw_scores=True, model="ranker")
    np.testing.assert_allclose(
        [one["score"] for one in raw],
        [float(pair_scores("w5 w6", DOCUMENTS[one["index"]])[0]) for one in raw],
        atol=1e-4,
    )


def test_texts_are_classified(server: Server) -> None:
    given = ["w1 w2", "w3"]
    logits = np.stack([texts.VECTORS[texts.tokens(text)].sum(axis=0) @ texts.CLASSES for text in given])
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    names = list(LABELS["id2label"].values())
    answer = ask(server, "/classify", model="classes", input=given)
    np.testing.assert_allclose([one["probs"] for one in answer["data"]], expected, atol=1e-6)
    assert [one["label"] for one in answer["data"]] == [names[place] for place in expected.argmax(axis=1)]
    assert {one["num_classes"] for one in answer["data"]} == {3}
    assert answer["usage"]["prompt_tokens"] == 7
    for path in ("/classify", "/predict"):
        single = ask(server, path, model="classes", inputs=given[0])
        assert [one["label"] for one in single] == [names[place] for place in np.argsort(-expected[0])]
        np.testing.assert_allclose([one["score"] for one in single], sorted(expected[0], reverse=True), atol=1e-6)
        assert ask(server, path, model="classes", inputs=given)[0] == single
    unnamed = ask(server, "/classify", model="ranker", input="w1")
    assert unnamed["data"][0]["label"] == "LABEL_0"


def test_classes_have_their_names_over_the_protocol_of_triton_too(server: Server) -> None:
    inputs = [{"name": "text", "datatype": "BYTES", "shape": [1, 1], "data": ["w1"]}]
    outputs = [{"name": "scores", "parameters": {"classification": 1}}]
    answer = ask(server, "/v2/models/classes/infer", inputs=inputs, outputs=outputs)
    assert answer["outputs"][0]["data"][0].split(":")[2] in LABELS["id2label"].values()


def test_texts_become_tokens(server: Server) -> None:
    numbers = [2, len(texts.SPECIAL) + 1, 1, 3]
    answer = ask(server, "/tokenize", model="vectors", prompt="w1 \u00e4bc", return_token_strs=True)
    assert answer == {
        "count": 4,
        "max_model_len": 16,
        "tokens": numbers,
        "token_strs": ["[CLS]", "w1", "[UNK]", "[SEP]"],
    }
    bare = ask(server, "/tokenize", model="vectors", prompt="w1", add_special_tokens=False)
    assert bare == {"count": 1, "max_model_len": 16, "tokens": numbers[1:2], "token_strs": None}
    pieces = ask(server, "/tokenize", model="vectors", inputs=["\u00e4 w1", ""])
    assert [(one["text"], one["special"], one["start"], one["stop"]) for one in pieces[0]] == [
        ("[CLS]", True, None, None),
        ("\u00e4", False, 0, 1),
        ("w1", False, 2, 4),
        ("[SEP]", True, None, None),
    ]
    assert [one["id"] for one in pieces[1]] == [2, 3]
    assert ask(server, "/tokenize", model="vectors", inputs=[]) == []
    long = ask(server, "/tokenize", model="vectors", prompt="w1 " * 10_000)
    assert long["count"] == 10_002


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("/v1/embeddings", {"model": "nobody", "input": "a"}, 404, "nobody"),
        ("/v1/embeddings", {"model": "vectors"}, 400, "missing field `input`"),
        ("/v1/embeddings", {"model": "vectors", "input": "a", "seed": 1}, 400, "unknown field `seed`"),
        ("/v1/embeddings", {"model": "vectors", "input": ["a", 1]}, 400, "texts and tokens are mixed"),
        ("/v1/embeddings", {"model": "ranker", "input": "a"}, 400, "gives scores, expected one that gives vectors"),
        ("/v1/embeddings", {"input": "a"}, 400, "'model' is missing, expected one of: short, small, vectors"),
        ("/v1/embeddings", b"{", 400, "the body cannot be read: EOF"),
        ("/v1/embeddings", b"", 400, "the body cannot be read: EOF"),
        ("/v1/embeddings", b'{"input": "\xff"}', 400, "the body cannot be read"),
        ("/rerank", {"model": "vectors", "query": "a", "documents": []}, 400, "gives vectors, expected one that"),
        ("/rerank", {"model": "classes", "query": "a", "documents": ["a"]}, 400, "ranks are made of one"),
        ("/rerank", {"model": "lengths", "query": "a", "documents": ["a"]}, 400, "it has no input 'text_pair'"),
        ("/classify", {"model": "classes"}, 400, "'input' is missing"),
        ("/tokenize", {"model": "lengths", "prompt": "a"}, 400, "has no tokenizer of its own"),
        ("/tokenize", {"model": "nobody", "prompt": "a"}, 404, "nobody"),
        ("/tokenize", {"model": "vectors"}, 400, "expected either 'prompt' or 'inputs'"),
        ("/tokenize", {"model": "vectors", "prompt": "a" * (1 << 20)}, 400, "expected at most 131072"),
    ],
)
def test_what_is_wrong_is_said_in_the_shape_of_openai(
    server: Server, path: str, body: object, status: int, text: str
) -> None:
    found, error = refused(server, path, body)
    assert (found, error["type"]) == (status, "invalid_request_error")
    assert text in error["message"]


def test_models_are_listed_as_openai_does(server: Server) -> None:
    listed = server.get("/v1/models").json()
    assert (listed["object"], [one["id"] for one in listed["data"]]) == (
        "list",
        ["classes", "lengths", "ranker", "short", "small", "vectors"],
    )
    one = server.get("/v1/models/small").json()
    assert one == listed["data"][4]
    assert (one["object"], one["owned_by"]) == ("model", "kushi")
    assert 0 <= time.time() - one["created"] < 3600
    missing = server.get("/v1/models/nobody")
    assert (missing.status, missing.json()["error"]["code"]) == (404, "model_not_found")
    assert server.post("/v1/models", b"{}").status == 405


def test_a_query_beside_each_text_is_bounded(server: Server) -> None:
    body = {"model": "ranker", "query": "w1 " * 100_000, "documents": ["w1"] * 1000}
    status, error = refused(server, "/rerank", body)
    assert (status, "exceeds the maximum allowed input size" in error["message"]) == (400, True)


def test_other_methods_are_refused(server: Server) -> None:
    for path in ("/v1/embeddings", "/embed", *RERANK, "/classify", "/predict", "/tokenize"):
        answer = server.get(path)
        assert (answer.status, answer.header("allow")) == (405, "POST")


def test_the_only_model_need_not_be_named(server: Server) -> None:
    status, error = refused(server, "/rerank", {"query": "w1", "documents": ["w1"]})
    assert (status, "expected one of: classes, ranker" in error["message"]) == (400, True)
