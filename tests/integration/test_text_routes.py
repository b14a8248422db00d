"""Routes that clients of OpenAI, Cohere, vLLM and text-embeddings-inference know, over HTTP."""

from __future__ import annotations

import base64
import json
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import numpy_helper

from tests import texts
from tests.serving import Server
from tests.texts import embedding, pair_scores, parameter, sigmoid, write
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.conftest import StartServer

LABELS = {"id2label": {"0": "good", "1": "bad", "2": "so so"}}
RERANK = ("/rerank", "/v1/rerank", "/v2/rerank")

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
CONFIG = """
backend: "python" max_batch_size: 4
input { name: "TEXT" data_type: TYPE_STRING dims: [1] }
output { name: "OUT" data_type: TYPE_FP32 dims: [2] }
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


def ask(server: Server, path: str, **body: object) -> Any:  # noqa: ANN401 - JSON
    answer = server.post(path, json.dumps(body).encode())
    assert answer.status == 200, answer.body
    return answer.json()


def refused(server: Server, path: str, body: object) -> tuple[int, dict[str, Any]]:
    answer = server.post(path, body if isinstance(body, bytes) else json.dumps(body).encode())
    found = answer.json()
    assert list(found) == ["error"]
    assert list(found["error"]) == ["message", "type", "param", "code"]
    return answer.status, found["error"]


def vectors(answer: Any) -> NDArray[np.float32]:  # noqa: ANN401 - JSON
    assert [one["index"] for one in answer["data"]] == list(range(len(answer["data"])))
    return np.array([one["embedding"] for one in answer["data"]], np.float32)


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


def test_one_model_alone_is_asked_without_its_name(tmp_path: Path, start_server: StartServer) -> None:
    write(tmp_path)
    server = start_server(tmp_path)
    assert ask(server, "/v1/embeddings", input="w1")["model"] == "m"
    status, error = refused(server, "/rerank", {"query": "w1", "documents": ["w1"]})
    assert (status, error["code"], "no model of texts serves that" in error["message"]) == (
        404,
        "model_not_found",
        True,
    )
    counted = server.metrics()
    assert counted['kushi_text_tokens_total{model="m",version="1"}'] == 3
    assert counted['kushi_text_padding_tokens_total{model="m",version="1"}'] == 0


WAITING = """
import os
import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        while not os.path.exists(GATE):
            time.sleep(0.01)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ones((1, 2), np.float32))]) for _ in requests]
"""


def test_a_full_queue_is_429_here_and_503_on_the_routes_of_triton(tmp_path: Path, start_server: StartServer) -> None:
    gate = tmp_path / "gate"
    model = tmp_path / "models" / "lengths" / "1"
    model.mkdir(parents=True)
    (model / "model.py").write_text(f"GATE = {str(gate)!r}\n{WAITING}")
    (model.parent / "config.pbtxt").write_text(
        CONFIG.replace("max_batch_size: 4", "max_batch_size: 1")
        + "dynamic_batching { default_queue_policy { max_queue_size: 1 } }"
    )
    server = start_server(tmp_path / "models")
    body = json.dumps({"model": "lengths", "input": "a"}).encode()
    infer = {"inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": ["a"]}]}
    labels = '{model="lengths",version="1"}'
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(server.post, "/v1/embeddings", body)
        eventually(lambda: server.metrics()["kushi_running_requests"] == 1, "a request runs")
        second = pool.submit(server.post, "/v1/embeddings", body)
        eventually(lambda: server.metrics()[f"nv_inference_pending_request_count{labels}"] == 1, "a request waits")
        refusal = server.post("/v1/embeddings", body)
        assert (refusal.status, refusal.header("retry-after")) == (429, "1")
        assert refusal.json()["error"]["type"] == "rate_limit_error"
        assert server.post("/v2/models/lengths/infer", json.dumps(infer).encode()).status == 503
        gate.touch()
        assert [each.result().status for each in (first, second)] == [200, 200]


def test_a_token_is_asked_for_as_for_inference(tmp_path: Path, start_server: StartServer) -> None:
    write(tmp_path)
    server = start_server(tmp_path, "--http-restricted-api=inference:key=secret")
    body = json.dumps({"input": "w1", "inputs": "w1", "prompt": "w1", "query": "w1"}).encode()
    for path in ("/v1/embeddings", "/embed", *RERANK, "/classify", "/predict", "/tokenize"):
        assert server.post(path, body).status == 403
    assert server.get("/v1/models").status == 403
    body = json.dumps({"input": "w1"}).encode()
    assert server.post("/v1/embeddings", body, [("key", "secret")]).status == 200


ODD = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            texts = pb_utils.get_input_tensor_by_name(request, "text").as_numpy().reshape(-1)
            width = 2 if texts[0] == b"two" else 1
            odd = np.full((len(texts), width), np.nan if texts[0] == b"nan" else 1, np.float32)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", odd)]))
        return answers
"""
ODD_CONFIG = """
backend: "python" max_batch_size: 8
input [ { name: "text" data_type: TYPE_STRING dims: [1] }, { name: "text_pair" data_type: TYPE_STRING dims: [1] } ]
output { name: "OUT" data_type: TYPE_FP32 dims: [-1] }
"""


def test_what_a_model_cannot_mean_is_an_error(tmp_path: Path, start_server: StartServer) -> None:
    model = tmp_path / "odd" / "1"
    model.mkdir(parents=True)
    (model / "model.py").write_text(ODD)
    (model.parent / "config.pbtxt").write_text(ODD_CONFIG)
    server = start_server(tmp_path)
    for query, text in (("nan", "what is no finite number"), ("two", "answers 2 scores to a text")):
        answer = server.post("/rerank", json.dumps({"model": "odd", "query": query, "documents": ["a", "b"]}).encode())
        assert answer.status == 500
        assert answer.json()["error"]["type"] == "server_error"
        assert text in answer.json()["error"]["message"]
    assert len(ask(server, "/rerank", model="odd", query="a", documents=["a"] * 20)["results"]) == 20


def test_all_parts_of_a_request_are_answered_by_one_version(tmp_path: Path, start_server: StartServer) -> None:
    """Which is loaded again all the while, with other weights."""
    config = "max_batch_size: 1\n"
    networks = [texts.network("texts"), texts.network("texts")]
    (vectors_of_the_other,) = (one for one in networks[1].graph.initializer if one.name == "vectors")
    vectors_of_the_other.CopyFrom(numpy_helper.from_array(texts.VECTORS[:, ::-1].copy(), "vectors"))
    for name, made in zip(("a", "b"), networks, strict=True):
        write(tmp_path / "networks", name, made=made)
    write(tmp_path / "models", "m", made=networks[0], text=config)
    server = start_server(tmp_path / "models", "--model-control-mode=explicit", "--load-model=m")
    body = json.dumps({"model": "m", "input": ["w1 w2"] * 200}).encode()
    is_over = threading.Event()

    def reload() -> int:
        turn = 0
        while not is_over.is_set():
            turn += 1
            path = tmp_path / "models" / "m" / "1" / "model.onnx"
            new = path.with_suffix(".new")
            shutil.copy(tmp_path / "networks" / "ab"[turn % 2] / "1" / "model.onnx", new)
            new.rename(path)
            assert server.post("/v2/repository/models/m/load", b"{}").status == 200
        return turn

    with ThreadPoolExecutor(4) as pool:
        reloading = pool.submit(reload)
        answers = [pool.submit(server.post, "/v1/embeddings", body) for _ in range(60)]
        found = [answer.result() for answer in answers]
        is_over.set()
        assert reloading.result() > 1
    assert {answer.status for answer in found} == {200}
    seen = set()
    for answer in found:
        rows = np.round(vectors(answer.json()), 5)
        assert len(np.unique(rows, axis=0)) == 1
        seen.add(tuple(rows[0].tolist()))
    assert len(seen) == 2
