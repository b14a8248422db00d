"""Generative models where something is in the way: clients that leave, processes that die, files that do not fit."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from runners import Engine, EngineOptions, KushiError, ModelOptions
from tests.generative import CONTEXT, write_directory, write_model
from tests.integration.test_generative import CONFIG, GREEDY, ask
from tests.processes import children, lives
from tests.raw_http import frame
from tests.waiting import eventually, settles

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.raw_http import Connection, Response
    from tests.serving import Server

LONG = {"temperature": 0, "max_tokens": 1_000_000, "ignore_eos": True}
BYTES_OF_TOKEN = 512
"""That are kept of it, in 32 bits"""


def parameter(name: str, value: object) -> str:
    return f'parameters {{ key: "kushi.{name}" value {{ string_value: "{value}" }} }}\n'


def write(repository: Path, more: str = "", config: str = CONFIG, context: int = CONTEXT) -> Path:
    version = repository / "m" / "1"
    version.mkdir(parents=True, exist_ok=True)
    (repository / "m" / "config.pbtxt").write_text(config + more)
    return write_model(version / "model.gguf", context=context)


def body_of(prompt: str, sampling: dict[str, Any], *, streams: bool = True) -> bytes:
    body = {"text_input": prompt, "stream": streams, "sampling_parameters": json.dumps(sampling)}
    return json.dumps(body).encode()


def begin(server: Server, prompt: str, sampling: dict[str, Any] = LONG) -> Connection:
    """Asks for a stream, of which nothing has been read"""
    connection = server.connect()
    path = "/v2/models/m/generate_stream"
    connection.send(frame("POST", path, [("Content-Type", "application/json")], body_of(prompt, sampling)))
    return connection


def texts_of(response: Response) -> tuple[str, list[str]]:
    """The text of a stream, and its errors"""
    events = [json.loads(event.removeprefix("data: ")) for event in response.body.decode().split("\n\n") if event]
    errors = [event["error"] for event in events if "error" in event]
    return "".join(event["text_output"] for event in events if "error" not in event), errors


def is_running(server: Server, count: int) -> bool:
    return server.metrics()["kushi_running_requests"] == count


def test_clients_that_leave_take_nothing_with_them(tmp_path: Path, start_server: StartServer) -> None:
    # of a long answer there is room for one and no other
    write(tmp_path, parameter("kv_cache_bytes", (CONTEXT + 64) * BYTES_OF_TOKEN))
    server = start_server(tmp_path)
    expected = ask(server, "the cat")["text_output"]
    for turn in range(60):
        connection = begin(server, f"the cat {turn}")
        if turn % 2:
            eventually(connection.has_answer, "it has begun")
        connection.close()
    eventually(lambda: is_running(server, 0), "nothing runs any more")
    assert ask(server, "the cat")["text_output"] == expected
    longest = ask(server, "the", {**LONG, "max_tokens": CONTEXT - 1}, return_num_output_tokens=True)
    assert longest["num_output_tokens"] == CONTEXT - 1


@pytest.mark.parametrize("leave", [False, True])
def test_nobody_takes_the_cache_from_others(tmp_path: Path, start_server: StartServer, *, leave: bool) -> None:
    # few of those below have room at the same time
    write(tmp_path, parameter("kv_cache_bytes", 33 * 32 * BYTES_OF_TOKEN))
    server = start_server(tmp_path)
    expected = ask(server, "the cat")["text_output"]
    drawn = {"temperature": 1.5, "ignore_eos": True, "seed": 1}

    def crowd(number: int) -> str:
        prompt = "the dog sat" * (number % 4 + 1)
        many, long, some = {"n": 30, "max_tokens": 20}, {"max_tokens": 400}, {"n": 4, "max_tokens": 150}
        sampling = {**drawn, **(many, long, some)[number % 3]}
        if leave and number % 2:
            with begin(server, prompt, sampling) as given_up:
                eventually(given_up.has_answer, "it has begun")
        else:
            response = server.post("/v2/models/m/generate", body_of(prompt, sampling, streams=False))
            assert response.status == 200, response.body
        return str(ask(server, "the cat")["text_output"])

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(crowd, range(24))) == {expected}


@pytest.mark.parametrize(
    ("dies", "text"),
    # it hangs for longer than one that only waits for its turn
    [(True, "killed by signal 9"), (False, "it has said nothing for more than 10 s")],
    ids=["dies", "hangs"],
)
def test_a_process_that_is_lost_ends_its_streams_and_another_one_follows(
    tmp_path: Path, start_server: StartServer, *, dies: bool, text: str
) -> None:
    write(tmp_path, parameter("step_timeout", 10), context=60_000)
    server = start_server(tmp_path)
    expected = ask(server, "the cat")["text_output"]
    with ThreadPoolExecutor(8) as pool, ExitStack() as opened:
        streams = [opened.enter_context(begin(server, f"the cat {number}")) for number in range(8)]
        eventually(lambda: all(stream.has_answer() for stream in streams), "all have begun")
        # none comes to its end before
        (process,) = children(server.pid)
        os.kill(process, signal.SIGSTOP)
        assert is_running(server, 8)
        if dies:
            os.kill(process, signal.SIGKILL)
        answers = list(pool.map(lambda stream: stream.receive(), streams))
    for answer in answers:
        _, errors = texts_of(answer)
        assert len(errors) == 1
        assert text in errors[0]
    assert ask(server, "the cat")["text_output"] == expected
    eventually(lambda: not lives(process), "it has gone")


def test_a_reload_leaves_open_streams_alone(tmp_path: Path, start_server: StartServer) -> None:
    write(tmp_path, context=2_000)
    server = start_server(tmp_path, "--model-control-mode=explicit", "--load-model=m")
    with begin(server, "the cat") as alone:
        expected, _ = texts_of(alone.receive())
    with begin(server, "the cat") as going_on:
        eventually(going_on.has_answer, "it has begun")
        write_model(tmp_path / "m" / "1" / "model.gguf", seed=1, context=2_000)
        assert server.post("/v2/repository/models/m/load", b"{}").status == 200
        assert texts_of(going_on.receive()) == (expected, [])
    with begin(server, "the cat") as other:
        text, errors = texts_of(other.receive())
    assert text != expected
    assert not errors
    eventually(lambda: len(children(server.pid)) == 1, "the process of the old one has gone")
    assert server.post("/v2/repository/models/m/unload", b"{}").status == 200
    eventually(lambda: not children(server.pid), "so has the other one")


def test_who_reads_slowly_holds_nobody_up_and_gets_all(tmp_path: Path, start_server: StartServer) -> None:
    write(tmp_path, context=2_000)
    server = start_server(tmp_path)
    with begin(server, "the cat") as slow:
        with begin(server, "the cat") as fast:
            text, errors = texts_of(fast.receive())
        assert texts_of(slow.receive()) == (text, errors) == (text, [])


def test_a_full_queue_refuses_what_comes(tmp_path: Path, start_server: StartServer) -> None:
    config = CONFIG.replace('"8"', '"1"') + "dynamic_batching { default_queue_policy { max_queue_size: 1 } }"
    write(tmp_path, config=config, context=60_000)
    server = start_server(tmp_path)
    with begin(server, "the cat") as running:
        eventually(running.has_answer, "it runs")
        (process,) = children(server.pid)
        os.kill(process, signal.SIGSTOP)
        assert is_running(server, 1)
        with begin(server, "the dog"):
            eventually(lambda: server.metrics()["kushi_queue_requests"] == 1, "one waits")
            response = server.post("/v2/models/m/generate", body_of("the", GREEDY, streams=False))
            assert response.status == 503
            assert "Exceeds maximum queue size" in response.error
    os.kill(process, signal.SIGCONT)
    eventually(lambda: is_running(server, 0), "both have gone")
    assert ask(server, "the cat")["text_output"].startswith("the cat")


def test_a_chat_that_waits_too_long_is_refused_as_its_queue_says(tmp_path: Path, start_server: StartServer) -> None:
    policy = "default_timeout_microseconds: 200000 timeout_action: REJECT"
    config = CONFIG.replace('"8"', '"1"') + f"dynamic_batching {{ default_queue_policy {{ {policy} }} }}"
    path = write(tmp_path, config=config, context=60_000)
    path.with_name("chat_template.jinja").write_text("{{ messages[0].content }}")
    server = start_server(tmp_path)
    with begin(server, "the cat") as running:
        eventually(running.has_answer, "it runs")
        (process,) = children(server.pid)
        os.kill(process, signal.SIGSTOP)
        for stream in (False, True):
            chat = {"messages": [{"role": "user", "content": "the dog"}], "stream": stream}
            response = server.post("/v1/chat/completions", json.dumps(chat).encode())
            assert "timeout expired" in response.json()["error"]["message"]
    os.kill(process, signal.SIGCONT)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ("instance_group { count: 2 }", "has 2 instances, expected 1"),
        (parameter("max_tokens", 1000), "can look back 512 tokens, and 'kushi.max_tokens' says 1000"),
        (parameter("max_tokens", "many"), "'kushi.max_tokens' of model 'm' must be a number from 1 to"),
        (parameter("deterministic", "yes"), "'kushi.deterministic' of model 'm' must be 'true' or 'false', got 'yes'"),
        (parameter("kv_cache_bytes", 1000), "'kushi.kv_cache_bytes' must be at least 65536, got 1000"),
        ("max_batch_size: 4", "be decoupled and have no batches"),
        ('input { name: "text" data_type: TYPE_STRING dims: [1] }', "input 'text' is none that a generative model has"),
        (
            'input { name: "text_input" data_type: TYPE_INT32 dims: [1] }',
            "input 'text_input' of a generative model is BYTES, got INT32",
        ),
    ],
)
def test_configurations_that_cannot_be_are_refused(tmp_path: Path, more: str, text: str) -> None:
    write(tmp_path, more)
    assert text in reason(tmp_path)


def reason(repository: Path) -> str:
    """Why the model does not load"""
    before = set(children(os.getpid()))
    with Engine(repository, options=EngineOptions(models=ModelOptions(control="explicit"))) as engine:
        with pytest.raises(KushiError) as refused:
            engine.load_model("m")
        settles(lambda: set(children(os.getpid())) <= before, "no process of the model stays")
    return str(refused.value)


def test_files_that_do_not_fit_are_refused_and_say_what_to_do(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_bytes(b"GGUF" + bytes(100))
    assert "cannot be read as GGUF: its version is 0" in reason(tmp_path)
    write_model(path, kind="llama")
    assert "its tokenizer is of the kind 'llama', expected 'gpt2': put the model's tokenizer.json beside it" in reason(
        tmp_path
    )
    path.unlink()
    (path.parent / "model.safetensors").write_bytes(b"")
    assert f"`optimum-cli export openvino --model {path.parent} OUT` makes one" in reason(tmp_path)


def test_a_file_alone_is_served_without_a_configuration(tmp_path: Path, start_server: StartServer) -> None:
    write_model(tmp_path / "m.gguf")
    server = start_server(tmp_path / "m.gguf")
    assert ask(server, "the cat")["text_output"].startswith("the cat")


def test_a_directory_of_openvino_is_the_same_model(tmp_path: Path, start_server: StartServer) -> None:
    path = write(tmp_path)
    server = start_server(tmp_path)
    expected = ask(server, "the cat")["text_output"]
    assert server.stop() == 0
    path.unlink()
    write_directory(path.parent)
    assert ask(start_server(tmp_path), "the cat")["text_output"] == expected


PREPARE = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            question = pb_utils.get_input_tensor_by_name(request, "QUESTION").as_numpy()[0].decode()
            tensors = [
                pb_utils.Tensor("PROMPT", np.array([("the " + question).encode()], object)),
                pb_utils.Tensor("STREAM", np.array([True])),
                pb_utils.Tensor("SAMPLING", np.array([SAMPLING], object)),
            ]
            answers.append(pb_utils.InferenceResponse(tensors))
        return answers
"""

FINISH = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            piece = pb_utils.get_input_tensor_by_name(request, "PIECE").as_numpy()[0]
            shown = pb_utils.Tensor("SHOWN", np.array([b"<" + piece + b">"], object))
            answers.append(pb_utils.InferenceResponse([shown]))
        return answers
"""

STEP = """
backend: "python"
input {{ name: "{input}" data_type: TYPE_STRING dims: [1] }}
{outputs}
"""


def test_it_is_a_step_of_an_ensemble(tmp_path: Path, start_server: StartServer) -> None:
    write(tmp_path)
    code = f"SAMPLING = {json.dumps(GREEDY)!r}\n{PREPARE}"
    outputs = [("PROMPT", "TYPE_STRING"), ("STREAM", "TYPE_BOOL"), ("SAMPLING", "TYPE_STRING")]
    for name, source, given, made in (
        ("prepare", code, "QUESTION", outputs),
        ("finish", FINISH, "PIECE", [("SHOWN", "TYPE_STRING")]),
    ):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "model.py").write_text(source)
        texts = [f'output {{ name: "{output}" data_type: {kind} dims: [1] }}' for output, kind in made]
        (tmp_path / name / "config.pbtxt").write_text(STEP.format(input=given, outputs="\n".join(texts)))
    (tmp_path / "chat" / "1").mkdir(parents=True)
    (tmp_path / "chat" / "config.pbtxt").write_text(ENSEMBLE)
    server = start_server(tmp_path)
    response = server.post("/v2/models/chat/generate_stream", json.dumps({"QUESTION": "cat"}).encode())
    events = [json.loads(event.removeprefix("data: ")) for event in response.body.decode().split("\n\n") if event]
    shown = [event["SHOWN"] for event in events]
    assert all(piece[0] + piece[-1] == "<>" for piece in shown)
    expected = ask(server, "the cat", exclude_input_in_output=True)["text_output"]
    assert "".join(piece[1:-1] for piece in shown) == expected


ENSEMBLE = """
platform: "ensemble"
input { name: "QUESTION" data_type: TYPE_STRING dims: [1] }
output { name: "SHOWN" data_type: TYPE_STRING dims: [1] }
ensemble_scheduling {
  step {
    model_name: "prepare" model_version: -1
    input_map { key: "QUESTION" value: "QUESTION" }
    output_map { key: "PROMPT" value: "prompt" }
    output_map { key: "STREAM" value: "stream" }
    output_map { key: "SAMPLING" value: "sampling" }
  }
  step {
    model_name: "m" model_version: -1
    input_map { key: "text_input" value: "prompt" }
    input_map { key: "stream" value: "stream" }
    input_map { key: "sampling_parameters" value: "sampling" }
    output_map { key: "text_output" value: "piece" }
  }
  step {
    model_name: "finish" model_version: -1
    input_map { key: "PIECE" value: "piece" }
    output_map { key: "SHOWN" value: "SHOWN" }
  }
}
"""
