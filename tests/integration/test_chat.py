"""Chats and completions as clients of OpenAI ask for them"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests import generative
from tests.generative import ids_of, text_of, write_model, write_scripted
from tests.integration.test_generative import BARE, CONFIG, GREEDY
from tests.serving import Server, labelled
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SCRIPTS = {
    "hello": ("Hello", ",", " w\u00f6rld", "!"),
    "call": ("I look. ", "<tool_call>", '\n{"name": "f", "argum', 'ents": {"a": 1}}', "\n</tool_call>"),
    "two": ("<tool_call>{", '"name": "g"}</tool_', "call>\n<tool_call>{", '"name": "h", "arguments": {}}</tool_call>'),
    "none": ("<tool_", "call>nothing", "</tool_call> at all"),
}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
PROMPTS = ("the cat", "the dog sat", "\u2603 \u00e4")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("chats")
    for name in ("script", "m", "free"):
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(CONFIG)
    with (repository / "script" / "config.pbtxt").open("a") as config:
        config.write('parameters { key: "kushi.tool_calls" value { string_value: "hermes" } }\n')
    write_scripted(repository / "script" / "1" / "model.gguf", SCRIPTS)
    write_model(repository / "m" / "1" / "model.gguf")
    write_model(repository / "free" / "1" / "model.gguf")
    (repository / "free" / "1" / "chat_template.jinja").write_text("{{ messages[-1].content }}")
    (repository / "m" / "1" / "chat_template.jinja").write_text("{{ raise_exception('no chats here') }}")
    return repository


@pytest.fixture(scope="module")
def chatting(repository: Path) -> Iterator[Server]:
    server = Server.start(repository)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def truth(repository: Path) -> dict[str, str]:
    """What follows each prompt"""
    path = repository / "m" / "1" / "model.gguf"
    answers = generative.bare(path, *((ids_of(prompt), BARE) for prompt in PROMPTS))
    return {prompt: text_of(answer) for prompt, answer in zip(PROMPTS, answers, strict=True)}


def said(script: str) -> str:
    return "".join(SCRIPTS[script])


def messages(script: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"<|{script}|>"}]


def ask(server: Server, path: str, **body: object) -> Any:  # noqa: ANN401 - JSON
    answer = server.post(path, json.dumps(body).encode())
    assert answer.status == 200, answer.body
    return answer.json()


def chat(server: Server, script: str, **more: object) -> Any:  # noqa: ANN401 - JSON
    return ask(server, "/v1/chat/completions", model="script", messages=messages(script), **more)


def complete(server: Server, prompt: object, **more: object) -> Any:  # noqa: ANN401 - JSON
    return ask(server, "/v1/completions", model="m", prompt=prompt, **GREEDY, **more)


def events(server: Server, path: str, **body: object) -> list[dict[str, Any]]:
    """All but the last, which says that it is the last"""
    answer = server.post(path, json.dumps({**body, "stream": True}).encode())
    assert answer.status == 200, answer.body
    assert (answer.header("content-type") or "").startswith("text/event-stream")
    *found, last = [event.removeprefix("data: ") for event in answer.body.decode().split("\n\n") if event]
    assert last == "[DONE]"
    return [json.loads(event) for event in found]


def chat_events(server: Server, script: str, **more: object) -> list[dict[str, Any]]:
    return events(server, "/v1/chat/completions", model="script", messages=messages(script), **more)


def deltas(found: list[dict[str, Any]], index: int = 0) -> list[dict[str, Any]]:
    choices = [choice for event in found for choice in event["choices"] if choice["index"] == index]
    assert [choice["finish_reason"] is None for choice in choices] == [True] * (len(choices) - 1) + [False]
    return [choice["delta"] for choice in choices]


def refused(server: Server, path: str, **body: object) -> tuple[int, str]:
    answer = server.post(path, json.dumps(body).encode())
    found = answer.json()
    assert list(found) == ["error"]
    assert list(found["error"]) == ["message", "type", "param", "code"]
    return answer.status, found["error"]["message"]


def test_a_chat_is_answered(chatting: Server) -> None:
    answer = chat(chatting, "hello")
    assert list(answer) == ["id", "object", "created", "model", "choices", "usage"]
    assert (answer["object"], answer["model"]) == ("chat.completion", "script")
    assert answer["id"].startswith("chatcmpl-")
    message = {"role": "assistant", "content": said("hello"), "refusal": None}
    assert answer["choices"] == [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}]
    usage = answer["usage"]
    # the token of the end is one of them
    assert usage["completion_tokens"] == len(SCRIPTS["hello"]) + 1
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert chat(chatting, "hello")["id"] != answer["id"]


def test_the_prompt_is_what_the_template_makes(chatting: Server) -> None:
    made = "system:Be brief.\nuser:<|hello|>\nassistant:<|hello|>"
    tokens = ask(chatting, "/tokenize", model="script", prompt=made, add_special_tokens=False)
    assert chat(chatting, "hello")["usage"]["prompt_tokens"] == tokens["count"]


def test_a_stream_begins_with_the_role_and_ends_with_the_reason(chatting: Server) -> None:
    found = chat_events(chatting, "hello", stream_options={"include_usage": True})
    first, *between, last = deltas(found)
    assert first == {"role": "assistant", "content": ""}
    assert "".join(delta["content"] for delta in between) == said("hello")
    assert last == {}
    assert {event["object"] for event in found} == {"chat.completion.chunk"}
    assert len({event["id"] for event in found}) == 1
    assert found[-1]["choices"] == []
    assert found[-1]["usage"] == chat(chatting, "hello")["usage"]
    assert all(event["usage"] is None for event in found[:-1])
    assert all("usage" not in event for event in chat_events(chatting, "hello"))


def test_a_chat_ends_where_it_may_not_go_on(chatting: Server) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        (choice,) = chat(chatting, "hello", **{name: 2})["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("Hello,", "length")
    (choice,) = chat(chatting, "hello", stop=[" w"])["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Hello,", "stop")


def test_several_answers_are_choices(chatting: Server) -> None:
    answer = chat(chatting, "hello", n=3)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert [choice["message"]["content"] for choice in answer["choices"]] == [said("hello")] * 3
    assert answer["usage"]["completion_tokens"] == 3 * (len(SCRIPTS["hello"]) + 1)
    found = chat_events(chatting, "hello", n=3)
    for index in range(3):
        assert "".join(delta.get("content", "") for delta in deltas(found, index)) == said("hello")


def test_tokens_are_told_with_their_probability(chatting: Server) -> None:
    (choice,) = chat(chatting, "hello", logprobs=True, temperature=0, top_logprobs=1)["choices"]
    tokens = choice["logprobs"]["content"]
    assert [token["token"] for token in tokens[:-1]] == list(SCRIPTS["hello"])
    assert [bytes(token["bytes"]).decode() for token in tokens[:-1]] == list(SCRIPTS["hello"])
    assert all(token["logprob"] == pytest.approx(0, abs=0.01) for token in tokens)
    assert [token["top_logprobs"][0]["token"] for token in tokens] == [token["token"] for token in tokens]
    found = chat_events(chatting, "hello", logprobs=True)
    streamed = [
        token["token"]
        for event in found
        for choice in event["choices"]
        for token in (choice["logprobs"] or {}).get("content", [])
    ]
    assert streamed == [token["token"] for token in tokens]


CALLS: Mapping[str, tuple[str | None, list[tuple[str, str]]]] = {
    "call": ("I look.", [("f", '{"a": 1}')]),
    "two": (None, [("g", "{}"), ("h", "{}")]),
}


@pytest.mark.parametrize("script", CALLS)
def test_calls_of_tools_are_found(chatting: Server, script: str) -> None:
    content, calls = CALLS[script]
    (choice,) = chat(chatting, script, tools=TOOLS, tool_choice="auto")["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (content, "tool_calls")
    found = choice["message"]["tool_calls"]
    assert [(call["function"]["name"], call["function"]["arguments"]) for call in found] == calls
    assert {call["type"] for call in found} == {"function"}
    assert len({call["id"] for call in found}) == len(found)


@pytest.mark.parametrize("script", CALLS)
def test_a_stream_has_the_same_calls(chatting: Server, script: str) -> None:
    content, calls = CALLS[script]
    found = chat_events(chatting, script, tools=TOOLS)
    assert found[-1]["choices"][0]["finish_reason"] == "tool_calls"
    told = deltas(found)
    assert "".join(delta.get("content", "") for delta in told) == (content or "")
    parts = [call for delta in told for call in delta.get("tool_calls", [])]
    assert [call["index"] for call in parts] == list(range(len(calls)))
    assert [(call["function"]["name"], call["function"]["arguments"]) for call in parts] == calls


def test_one_call_alone_may_be_wanted(chatting: Server) -> None:
    (choice,) = chat(chatting, "two", tools=TOOLS, parallel_tool_calls=False)["choices"]
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["g"]


def test_without_tools_all_is_text(chatting: Server) -> None:
    for more in ({}, {"tools": TOOLS, "tool_choice": "none"}):
        (choice,) = chat(chatting, "call", **more)["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == (said("call"), "stop")
        assert "tool_calls" not in choice["message"]
    (choice,) = chat(chatting, "none", tools=TOOLS)["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (said("none"), "stop")


def test_a_chat_goes_on_with_what_a_tool_has_said(chatting: Server) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    told = [
        {"role": "user", "content": [{"type": "text", "text": "What?"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "<|hello|>"},
    ]
    answer = ask(chatting, "/v1/chat/completions", model="script", messages=told, tools=TOOLS)
    assert answer["choices"][0]["message"]["content"] == said("hello")


def test_a_completion_is_what_the_pipeline_makes_by_itself(chatting: Server, truth: dict[str, str]) -> None:
    for prompt, expected in truth.items():
        answer = complete(chatting, prompt)
        assert answer["object"] == "text_completion"
        assert answer["choices"] == [{"index": 0, "text": expected, "logprobs": None, "finish_reason": "length"}]
        assert answer["usage"] == {
            "prompt_tokens": len(ids_of(prompt)),
            "completion_tokens": 40,
            "total_tokens": len(ids_of(prompt)) + 40,
        }
        assert complete(chatting, prompt, echo=True)["choices"][0]["text"] == prompt + expected
        assert complete(chatting, ids_of(prompt))["choices"][0]["text"] == expected
        assert complete(chatting, ids_of(prompt), echo=True)["choices"][0]["text"] == prompt + expected


def test_many_prompts_are_answered_in_their_order(chatting: Server, truth: dict[str, str]) -> None:
    prompts = list(PROMPTS) * 2
    for given in (prompts, [ids_of(prompt) for prompt in prompts]):
        answer = complete(chatting, given)
        assert [choice["index"] for choice in answer["choices"]] == list(range(len(prompts)))
        assert [choice["text"] for choice in answer["choices"]] == [truth[prompt] for prompt in prompts]
        assert answer["usage"]["prompt_tokens"] == sum(len(ids_of(prompt)) for prompt in prompts)
    found = events(
        chatting, "/v1/completions", model="m", prompt=prompts, **GREEDY, stream_options={"include_usage": True}
    )
    texts = [""] * len(prompts)
    for event in found:
        for choice in event["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == [truth[prompt] for prompt in prompts]
    assert found[-1]["usage"] == complete(chatting, prompts)["usage"]


def test_a_completion_tells_of_its_tokens(chatting: Server) -> None:
    (choice,) = complete(chatting, "the cat", logprobs=1)["choices"]
    told = choice["logprobs"]
    assert {len(told[name]) for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")} == {40}
    assert told["text_offset"][:2] == [0, len(told["tokens"][0])]
    found = events(chatting, "/v1/completions", model="m", prompt="the cat", **GREEDY, logprobs=1)
    streamed = [token for event in found for token in event["choices"][0]["logprobs"]["tokens"]]
    assert streamed == told["tokens"]


def of_schema(schema: object) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


SCHEMA = {
    "type": "object",
    "properties": {
        "sure": {"type": "boolean"},
        "kind": {"enum": ["one", "two"]},
        "more": {"anyOf": [{"$ref": "#/$defs/More"}, {"type": "null"}]},
    },
    "required": ["sure", "kind", "more"],
    "additionalProperties": False,
    "$defs": {
        "More": {
            "type": "object",
            "properties": {"day": {"type": "string", "format": "date"}},
            "required": ["day"],
            "additionalProperties": False,
        }
    },
}


def test_an_answer_has_the_form_that_is_asked_for(chatting: Server) -> None:
    # one that knows nothing of it, and draws
    (repeats, body) = (20, {"model": "free", "messages": messages("hello"), "temperature": 1.5, "max_tokens": 400})
    for seed in range(repeats):
        asked = {**body, "seed": seed, "response_format": of_schema(SCHEMA)}
        (choice,) = ask(chatting, "/v1/chat/completions", **asked)["choices"]
        text = choice["message"]["content"]
        streamed = events(chatting, "/v1/chat/completions", **asked)
        assert "".join(delta.get("content", "") for delta in deltas(streamed)) == text
        if choice["finish_reason"] == "length":
            # blanks may stand anywhere
            continue
        answer = json.loads(text)
        assert list(answer) == ["sure", "kind", "more"]
        assert isinstance(answer["sure"], bool)
        assert answer["kind"] in {"one", "two"}
        assert answer["more"] is None or list(answer["more"]) == ["day"]
    (choice,) = ask(chatting, "/v1/chat/completions", **body, response_format={"type": "json_object"})["choices"]
    assert choice["message"]["content"].lstrip().startswith("{")


@pytest.mark.parametrize("name", ["structured_outputs", "guided_decoding"])
def test_the_form_may_be_a_sampling_parameter(chatting: Server, name: str) -> None:
    schema = {"type": "array", "items": {"enum": [1, 2]}, "minItems": 2, "maxItems": 2}
    for given in (schema, json.dumps(schema)):
        sampling = json.dumps({name: {"json": given}, "max_tokens": 300, "seed": 1})
        body = {"text_input": "the cat", "sampling_parameters": sampling, "exclude_input_in_output": True}
        answer = ask(chatting, "/v2/models/free/generate", **body)["text_output"]
        assert all(one in {1, 2} for one in json.loads(answer))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"messages": []}, "'messages' is empty"),
        ({"messages": messages("hello"), "temperature": 3000}, "temperature must be non-negative"),
        ({"messages": messages("hello"), "logprobs": True, "top_logprobs": 5}, "logprobs must be at most"),
        (
            {"messages": messages("hello"), "response_format": {"type": "grammar"}},
            "'response_format' is 'grammar', expected text, json_object or json_schema",
        ),
        ({"messages": messages("hello"), "response_format": of_schema({"oneOf": [{}]})}, "the schema # has 'oneOf'"),
        ({"messages": messages("hello"), "response_format": of_schema({"type": "array"})}, "a list without 'items'"),
        (
            {"messages": messages("hello"), "response_format": {"type": "json_object"}, "min_tokens": 2},
            "ignore_eos and min_tokens do not go with it",
        ),
        ({"messages": messages("hello"), "tools": TOOLS, "tool_choice": "required"}, "'tool_choice' is required"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "the model takes texts alone"),
        ({"messages": [{"role": "user", "content": "x" * 2000}]}, "maximum context length is 512 tokens"),
        ({"messages": [{"role": "user", "content": "x" * 8_000_000}]}, "expected at most"),
        ({"messages": messages("hello"), "model": "m"}, "the chat template refuses it: no chats here"),
        ({"messages": messages("hello"), "model": "m", "tools": TOOLS}, "'kushi.tool_calls'"),
        ({"messages": messages("hello"), "x": 1}, "Unrecognized request argument supplied: x"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_is_refused(chatting: Server, body: dict[str, Any], text: str, *, stream: bool) -> None:
    status, message = refused(chatting, "/v1/chat/completions", **{"model": "script", **body, "stream": stream})
    assert status == 400
    assert text in message


def test_models_that_there_are_not_are_not_found(chatting: Server) -> None:
    assert refused(chatting, "/v1/completions", model="nobody", prompt="a")[0] == 404
    status, message = refused(chatting, "/v1/completions", prompt="a")
    assert (status, message) == (400, "'model' is missing, expected one of: free, m, script")
    assert chatting.get("/v1/models/script").json()["id"] == "script"


def test_a_chat_may_be_asked_for_by_the_protocol(chatting: Server) -> None:
    given = json.dumps({"messages": messages("call"), "tools": TOOLS})
    body = {"text_input": given, "parameters": {"text_input_kind": "chat"}}
    answer = ask(chatting, "/v2/models/script/generate", **body)
    assert answer["text_output"] == "I look."
    assert json.loads(answer["tool_calls"]) == [[{"name": "f", "arguments": '{"a": 1}'}]]
    body = {"text_input": "x", "parameters": {"text_input_kind": "song"}}
    response = chatting.post("/v2/models/script/generate", json.dumps(body).encode())
    assert (response.status, response.json()["error"]) == (
        400,
        "[request id: <id_unknown>] parameter 'text_input_kind' must be 'text', 'chat' or 'tokens'",
    )


def test_many_chats_do_not_mix(chatting: Server, truth: dict[str, str]) -> None:
    def one(number: int) -> tuple[object, object]:
        if number % 3 == 0:
            prompt = PROMPTS[number % len(PROMPTS)]
            return complete(chatting, prompt)["choices"][0]["text"], truth[prompt]
        script = ("hello", "none")[number % 2]
        if number % 3 == 1:
            return chat(chatting, script)["choices"][0]["message"]["content"], said(script)
        return "".join(delta.get("content", "") for delta in deltas(chat_events(chatting, script))), said(script)

    with ThreadPoolExecutor(16) as pool:
        for answer, expected in pool.map(one, range(96)):
            assert answer == expected


def test_tokens_are_counted(chatting: Server) -> None:
    names = ("kushi_prompt_tokens_total", "kushi_generated_tokens_total", "kushi_time_to_first_token_seconds_count")

    def counts() -> list[float]:
        metrics = chatting.metrics()
        return [labelled(metrics, name, model="script", version="1") for name in names]

    before = counts()
    usage = chat(chatting, "hello", n=2)["usage"]
    wanted = [usage["prompt_tokens"], usage["completion_tokens"], 2]
    eventually(
        lambda: [now - then for now, then in zip(counts(), before, strict=True)] == wanted, "all have been counted"
    )
    metrics = chatting.metrics()
    assert metrics["vllm:num_requests_waiting"] == 0
    eventually(lambda: chatting.metrics()["vllm:num_requests_running"] == 0, "nothing is written any more")
    assert chatting.metrics()["vllm:kv_cache_usage_perc"] == 0
