"""Models of texts: a network of tokens with its tokenizer.json takes texts, and answers what a script would."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient as GrpcClient
from tritonclient.grpc import InferInput as GrpcInput
from tritonclient.http import InferenceServerClient, InferInput

from runners import Engine, EngineFailed, EngineOptions, InvalidInput, KushiError, ModelOptions
from tests import texts
from tests.integration.grpc_doors import port_of
from tests.integration.test_docs_python import blocks, environment
from tests.serving import ROOT
from tests.texts import answer, asked, embedding, parameter, some, write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer

EXPLICIT = EngineOptions(models=ModelOptions(control="explicit"))


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


def test_executions_are_batches_that_ran(tmp_path: Path) -> None:
    write(tmp_path, text=parameter("batch_tokens", 64))
    with Engine(tmp_path) as engine:
        answer(engine, *["w1 w2"] * 40)
        (statistics,) = engine.statistics()["model_stats"]
    sizes = {one["batch_size"]: one["compute_infer"]["count"] for one in statistics["batch_stats"]}
    assert sum(size * count for size, count in sizes.items()) == 40
    # of four tokens each
    assert max(sizes) == 16
    assert statistics["execution_count"] == sum(sizes.values())
    assert statistics["inference_count"] == 40


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
    server = start_server(tmp_path / "my_models")
    answers = []
    for curl in blocks(page, "sh")[1:]:
        asking = shlex.split(curl.replace("localhost:8000", f"{server.http[0]}:{server.http[1]}"))
        answers.append(json.loads(subprocess.run(asking, capture_output=True, text=True, check=True).stdout))
    assert answers[0]["outputs"][0]["shape"] == [2, 4]
    assert [len(one["embedding"]) for one in answers[1]["data"]] == [4, 4]


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
