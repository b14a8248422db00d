"""Generative models: what is answered is what the pipeline makes by itself, whoever asks and in which way."""

from __future__ import annotations

import json
import queue
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient as GrpcClient
from tritonclient.grpc import InferInput as GrpcInput

from runners import Engine
from tests import generative
from tests.generative import ids_of, text_of, write_model
from tests.integration.grpc_doors import port_of
from tests.integration.test_docs_python import blocks, environment
from tests.serving import ROOT, Server
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tritonclient.grpc import InferResult

    from tests.conftest import StartServer

PROMPTS = ("the cat", "the dog sat", "\u2603 \u00e4", "a", "x" * 100, " the the", "1 2 3 ...", "\u00e4\u00f6")
GREEDY = {"temperature": 0, "max_tokens": 40, "ignore_eos": True}
BARE = {"max_new_tokens": 40, "ignore_eos": True}

CONFIG = """
backend: "openvino_genai"
parameters { key: "kushi.deterministic" value { string_value: "true" } }
parameters { key: "kushi.max_sequences" value { string_value: "8" } }
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("generative")
    (repository / "m" / "1").mkdir(parents=True)
    write_model(repository / "m" / "1" / "model.gguf")
    (repository / "m" / "config.pbtxt").write_text(CONFIG)
    return repository


@pytest.fixture(scope="module")
def truth(repository: Path) -> dict[str, str]:
    """What follows each prompt"""
    answers = generative.bare(repository / "m" / "1" / "model.gguf", *((ids_of(prompt), BARE) for prompt in PROMPTS))
    return {prompt: text_of(answer) for prompt, answer in zip(PROMPTS, answers, strict=True)}


@pytest.fixture(scope="module")
def generating(repository: Path) -> Iterator[Server]:
    server = Server.start(repository)
    try:
        yield server
    finally:
        server.stop()


def ask(server: Server, prompt: str, sampling: dict[str, Any] = GREEDY, **more: object) -> dict[str, Any]:
    body = {"text_input": prompt, "sampling_parameters": json.dumps(sampling), **more}
    response = server.post("/v2/models/m/generate", json.dumps(body).encode())
    assert response.status == 200, response.body
    return dict(json.loads(response.body))


def refused(server: Server, prompt: str, sampling: dict[str, Any] = GREEDY, **more: object) -> str:
    body = {"text_input": prompt, "sampling_parameters": json.dumps(sampling), **more}
    response = server.post("/v2/models/m/generate", json.dumps(body).encode())
    assert response.status == 400, response.body
    return str(json.loads(response.body)["error"])


def stream(server: Server, prompt: str, sampling: dict[str, Any] = GREEDY, **more: object) -> list[dict[str, Any]]:
    body = {"text_input": prompt, "stream": True, "sampling_parameters": json.dumps(sampling), **more}
    response = server.post("/v2/models/m/generate_stream", json.dumps(body).encode())
    assert response.status == 200, response.body
    events = [event.removeprefix("data: ") for event in response.body.decode().split("\n\n") if event]
    return [json.loads(event) for event in events]


OF_VLLM = {
    "text_input": "BYTES",
    "stream": "BOOL",
    "sampling_parameters": "BYTES",
    "exclude_input_in_output": "BOOL",
    "return_finish_reason": "BOOL",
    "return_cumulative_logprob": "BOOL",
    "return_logprobs": "BOOL",
    "return_num_input_tokens": "BOOL",
    "return_num_output_tokens": "BOOL",
    "text_output": "BYTES",
    "finish_reason": "BYTES",
    "cumulative_logprob": "FP32",
    "logprobs": "BYTES",
    "num_input_tokens": "UINT32",
    "num_output_tokens": "UINT32",
}
"""What Triton's vLLM backend calls its inputs and outputs; `image` and `embedding_request` are none of a text's"""


def test_inputs_and_outputs_are_those_of_tritons_vllm_backend(generating: Server) -> None:
    metadata = generating.get("/v2/models/m").json()
    assert {one["name"]: one["datatype"] for one in (*metadata["inputs"], *metadata["outputs"])} == OF_VLLM
    config = generating.get("/v2/models/m/config").json()
    assert [one["name"] for one in config["input"] if not one["optional"]] == ["text_input"]
    assert config["model_transaction_policy"] == {"decoupled": True}


@pytest.mark.parametrize("name", ["image", "embedding_request"])
def test_inputs_that_it_cannot_use_are_refused_by_name(generating: Server, name: str) -> None:
    given = GrpcInput(name, [1], "BYTES")
    given.set_data_from_numpy(np.array([b"x"], object))
    arrived: queue.Queue[tuple[InferResult, Exception | None]] = queue.Queue()
    with GrpcClient(f"127.0.0.1:{port_of(generating)}") as client:
        client.start_stream(lambda result, error: arrived.put((result, error)))
        client.async_stream_infer("m", [*grpc_inputs("the cat", GREEDY, streams=False), given])
        _, error = next_of(arrived)
    assert f"unexpected inference input '{name}' for model 'm'" in str(error)


def test_the_text_is_what_the_pipeline_makes_by_itself(generating: Server, truth: dict[str, str]) -> None:
    for prompt, expected in truth.items():
        assert ask(generating, prompt)["text_output"] == prompt + expected
        assert ask(generating, prompt, exclude_input_in_output=True)["text_output"] == expected


def test_a_stream_is_the_same_text_in_pieces(generating: Server, truth: dict[str, str]) -> None:
    for prompt, expected in truth.items():
        pieces = [event["text_output"] for event in stream(generating, prompt)]
        assert "".join(pieces) == expected


def test_many_at_once_answer_as_each_alone(generating: Server, truth: dict[str, str]) -> None:
    def pieces(prompt: str) -> str:
        return "".join(event["text_output"] for event in stream(generating, prompt))

    prompts = list(PROMPTS) * 4
    with ThreadPoolExecutor(len(prompts)) as pool:
        answers = list(pool.map(pieces, prompts))
    assert answers == [truth[prompt] for prompt in prompts]


def next_of(arrived: queue.Queue[tuple[InferResult, Exception | None]]) -> tuple[InferResult, Exception | None]:
    eventually(lambda: not arrived.empty(), "an answer")
    return arrived.get()


def grpc_inputs(prompt: str, sampling: dict[str, Any], *, streams: bool) -> list[GrpcInput]:
    text = GrpcInput("text_input", [1], "BYTES")
    text.set_data_from_numpy(np.array([prompt.encode()], object))
    flag = GrpcInput("stream", [1], "BOOL")
    flag.set_data_from_numpy(np.array([streams]))
    settings = GrpcInput("sampling_parameters", [1], "BYTES")
    settings.set_data_from_numpy(np.array([json.dumps(sampling).encode()], object))
    return [text, flag, settings]


@pytest.mark.parametrize("streams", [False, True])
def test_a_client_of_triton_reads_the_same(generating: Server, truth: dict[str, str], *, streams: bool) -> None:
    arrived: queue.Queue[tuple[InferResult, Exception | None]] = queue.Queue()
    with GrpcClient(f"127.0.0.1:{port_of(generating)}") as client:
        client.start_stream(lambda result, error: arrived.put((result, error)))
        for prompt, expected in truth.items():
            client.async_stream_infer(
                "m", grpc_inputs(prompt, GREEDY, streams=streams), enable_empty_final_response=True
            )
            text = ""
            while True:
                result, error = next_of(arrived)
                assert error is None
                output = result.as_numpy("text_output")
                text += b"".join(output).decode() if output is not None else ""
                if result.get_response().parameters["triton_final_response"].bool_param:
                    break
            assert text == ("" if streams else prompt) + expected


def test_in_the_same_process_it_is_a_stream_of_results(repository: Path, truth: dict[str, str]) -> None:
    with Engine(repository) as engine:
        results = engine.stream(
            "m", {"text_input": ["the cat"], "stream": [True], "sampling_parameters": [json.dumps(GREEDY)]}
        )
        text = "".join(result["text_output"][0].decode() for result in results)
    assert text == truth["the cat"]


def test_it_is_told_what_the_answer_has(generating: Server) -> None:
    answer = ask(
        generating,
        "the cat",
        {"temperature": 0, "max_tokens": 3, "ignore_eos": True, "logprobs": 1},
        return_finish_reason=True,
        return_cumulative_logprob=True,
        return_logprobs=True,
        return_num_input_tokens=True,
        return_num_output_tokens=True,
    )
    assert answer["finish_reason"] == "length"
    assert answer["num_input_tokens"] == len(ids_of("the cat"))
    assert answer["num_output_tokens"] == 3
    tokens = json.loads(answer["logprobs"])
    assert len(tokens) == 3
    told = [next(iter(token.values())) for token in tokens]
    assert all(one["rank"] == 1 and one["logprob"] < 0 for one in told)
    assert answer["cumulative_logprob"] == pytest.approx(sum(one["logprob"] for one in told), rel=1e-5)
    assert set(ask(generating, "the cat")) == {"model_name", "model_version", "text_output"}


def test_a_stream_tells_of_each_piece(generating: Server) -> None:
    events = stream(generating, "the cat", return_num_output_tokens=True, return_finish_reason=True)
    assert sum(event["num_output_tokens"] for event in events) == 40
    assert [event["finish_reason"] for event in events[:-1]] == ["None"] * (len(events) - 1)
    assert events[-1]["finish_reason"] == "length"


def test_a_stop_ends_the_text_and_is_never_sent(generating: Server, truth: dict[str, str]) -> None:
    for prompt, whole in truth.items():
        # of characters that come from several tokens
        stop = whole[5:8]
        expected = whole[: whole.index(stop)]
        sampling = {**GREEDY, "stop": [stop]}
        events = stream(generating, prompt, sampling, return_finish_reason=True)
        assert "".join(event["text_output"] for event in events) == expected
        assert events[-1]["finish_reason"] == "stop"
        assert ask(generating, prompt, sampling, exclude_input_in_output=True)["text_output"] == expected
        with_stop = {**sampling, "include_stop_str_in_output": True}
        assert ask(generating, prompt, with_stop, exclude_input_in_output=True)["text_output"] == expected + stop


def test_a_token_may_be_the_end(generating: Server, repository: Path) -> None:
    (tokens,) = generative.bare(repository / "m" / "1" / "model.gguf", (ids_of("the dog"), BARE))
    end = tokens[10]
    for ignored in (True, False):
        sampling = {**GREEDY, "stop_token_ids": [end], "ignore_eos": ignored}
        answer = ask(generating, "the dog", sampling, return_num_output_tokens=True, return_finish_reason=True)
        ends = [end] if ignored else [end, generative.END_ID]
        count = next(number for number, token in enumerate(tokens, 1) if token in ends)
        assert (answer["num_output_tokens"], answer["finish_reason"]) == (count, "stop")


def test_a_seed_says_what_is_drawn(generating: Server) -> None:
    sampling = {"temperature": 2.0, "max_tokens": 20, "ignore_eos": True}

    def drawn(**more: object) -> str:
        return str(ask(generating, "the cat", {**sampling, **more})["text_output"])

    assert drawn(seed=7) == drawn(seed=7)
    assert drawn(seed=7) != drawn(seed=8)
    assert len({drawn() for _ in range(8)}) > 1


def test_several_texts_may_answer(generating: Server) -> None:
    sampling = {"temperature": 2.0, "max_tokens": 10, "ignore_eos": True, "n": 3, "seed": 1}
    answer = ask(generating, "the cat", sampling, return_num_output_tokens=True, return_finish_reason=True)
    texts = answer["text_output"]
    assert len(texts) == 3
    assert len(set(texts)) == 3
    assert all(text.startswith("the cat") for text in texts)
    assert answer["num_output_tokens"] == 30
    assert answer["finish_reason"] == ["length"] * 3
    events = stream(generating, "the cat", sampling)
    streamed = ["".join(event["text_output"][place] for event in events) for place in range(3)]
    assert streamed == [text.removeprefix("the cat") for text in texts]


def test_of_several_texts_each_has_its_own_end(generating: Server) -> None:
    sampling = {"temperature": 2.0, "max_tokens": 60, "ignore_eos": True, "n": 6, "seed": 3}
    whole = ask(generating, "the cat", sampling, exclude_input_in_output=True)["text_output"]
    stop = whole[0][20]
    answer = ask(
        generating, "the cat", {**sampling, "stop": [stop]}, return_finish_reason=True, exclude_input_in_output=True
    )
    assert answer["text_output"] == [text.partition(stop)[0] for text in whole]
    assert answer["finish_reason"] == ["stop" if stop in text else "length" for text in whole]


@pytest.mark.parametrize(
    ("sampling", "text"),
    [
        ({"temprature": 1}, "Unexpected keyword argument 'temprature'"),
        ({"logit_bias": {"1": 2}}, "sampling parameter 'logit_bias' is none that this engine can do"),
        ({"guided_decoding": {"regex": "a"}}, "'guided_decoding.regex' is none that this engine can do"),
        ({"structured_outputs": {"json": {"not": {}}}}, "the schema # has 'not'"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json is no JSON"),
        ({"structured_outputs": {"json": {}, "json_object": True}}, "structured_outputs has more than one form"),
        ({"temperature": -1}, "temperature must be non-negative, and 100 at most, got -1."),
        ({"temperature": "hot"}, 'temperature must be a number, got "hot"'),
        ({"top_p": 0}, "top_p must be in (0, 1], got 0."),
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0."),
        ({"repetition_penalty": 0}, "repetition_penalty must be in [0.01, 100], got 0."),
        ({"min_p": 1}, "min_p must be in [0, 1), got 1."),
        ({"max_tokens": 1.5}, "max_tokens must be a whole number"),
        ({"min_tokens": 20}, "min_tokens must be less than or equal to max_tokens=16, got 20."),
        ({"temperature": 0, "n": 2}, "n must be 1 when using greedy sampling, got 2."),
        ({"n": 65}, "n must be at least 1 and at most 64, got 65."),
        ({"stop": [""]}, "stop cannot contain an empty string."),
        ({"stop": [1]}, "stop must be a text or a list of texts"),
        ({"logprobs": 2, "temperature": 0}, "logprobs must be at most 1 here, got 2"),
        ({"logprobs": 1}, "logprobs must be at most 0 here, got 1"),
        ({"stop_token_ids": [100_000]}, "100000 is none of the "),
    ],
)
def test_what_cannot_be_is_refused_by_name(generating: Server, sampling: dict[str, Any], text: str) -> None:
    assert text in refused(generating, "the cat", sampling)


def test_prompts_that_do_not_fit_are_refused(generating: Server) -> None:
    limit = f"This model's maximum context length is {generative.CONTEXT} tokens"
    assert limit in refused(generating, "z" * generative.CONTEXT)
    assert limit in refused(generating, "z" * 10_000_000)
    assert refused(generating, "").endswith("The prompt cannot be empty")
    assert "is not allowed" in refused(generating, "a", stream=True, exclude_input_in_output=False)
    longest = ask(generating, "z" * (generative.CONTEXT - 2), return_num_output_tokens=True, return_finish_reason=True)
    assert (longest["num_output_tokens"], longest["finish_reason"]) == (2, "length")


def test_sampling_parameters_may_be_parameters_of_the_request(generating: Server, truth: dict[str, str]) -> None:
    body = {"text_input": "the cat", "parameters": {"temperature": 0, "max_tokens": "40", "ignore_eos": True}}
    response = generating.post("/v2/models/m/generate", json.dumps(body).encode())
    assert json.loads(response.body)["text_output"] == "the cat" + truth["the cat"]


def test_more_than_run_at_once_wait_in_the_queue(generating: Server, truth: dict[str, str]) -> None:
    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda _: ask(generating, "the cat")["text_output"], range(40)))
    assert set(answers) == {"the cat" + truth["the cat"]}


def test_what_the_page_says_is_so(tmp_path: Path, start_server: StartServer) -> None:
    page = (ROOT / "docs" / "generative.md").read_text(encoding="utf-8")
    directory = tmp_path / "my_models" / "writer" / "1"
    directory.mkdir(parents=True)
    write_model(directory / "model.gguf")
    (directory / "chat_template.jinja").write_text("{{ messages[0].content }}")
    (program,) = blocks(page, "python")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    server = start_server(tmp_path / "my_models")
    whole, pieces, chat, completion, by_protocol = (
        subprocess.run(
            shlex.split(curl.replace("localhost:8000", f"{server.http[0]}:{server.http[1]}")),
            capture_output=True,
            check=True,
        ).stdout
        for curl in blocks(page, "sh")[1:]
    )
    events = [json.loads(event.removeprefix(b"data: ")) for event in pieces.split(b"\n\n") if event]
    text = "".join(event["text_output"] for event in events)
    assert json.loads(whole)["text_output"] == "The cat sat on" + text
    assert done.stdout.decode() == text
    for answer in (chat, by_protocol):
        assert json.loads(answer).get("error") is None, answer
    assert completion.endswith(b"data: [DONE]\n\n")
    assert json.loads(chat)["choices"][0]["message"]["role"] == "assistant"
