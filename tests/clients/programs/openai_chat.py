"""The client of OpenAI: chats and completions, whole and as streams, and calls of tools"""

import json
import sys

import openai


def main(http: str) -> None:
    client = openai.OpenAI(base_url=f"http://{http}/v1", api_key="none", max_retries=0)
    hello = [{"role": "user", "content": "<|hello|>"}]
    answer = client.chat.completions.create(model="writer", messages=hello)
    assert answer.choices[0].message.content == "Hello, world!", answer
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    told = client.chat.completions.create(
        model="writer", messages=hello, n=2, logprobs=True, max_completion_tokens=2, user="somebody"
    )
    assert [len(choice.logprobs.content) for choice in told.choices] == [2, 2]
    chunks = list(
        client.chat.completions.create(
            model="writer", messages=hello, stream=True, stream_options={"include_usage": True}
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == "Hello, world!", chunks
    assert chunks[-1].usage == answer.usage
    call_a_tool(client)
    completion = client.completions.create(model="writer", prompt=["<|hello|>", "a<|hello|>"], max_tokens=9)
    assert [choice.text for choice in completion.choices] == ["Hello, world!"] * 2
    stream = client.completions.create(model="writer", prompt="<|hello|>", max_tokens=2, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == "Hello,"
    for more in ({"response_format": {"type": "json_schema"}}, {"logit_bias": {"1": 1}}, {"temperature": 1000}):
        assert refusal(client, **more) == "invalid_request_error"


def refusal(client: openai.OpenAI, **more: object) -> str:
    try:
        client.chat.completions.create(model="writer", messages=[{"role": "user", "content": "a"}], **more)
    except openai.BadRequestError as error:
        return str(error.type)
    raise AssertionError(more)


def call_a_tool(client: openai.OpenAI) -> None:
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    messages = [{"role": "user", "content": "<|call|>"}]
    (choice,) = client.chat.completions.create(model="writer", messages=messages, tools=[tool]).choices
    assert choice.finish_reason == "tool_calls", choice
    (call,) = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("add", {"a": 1})
    messages += [
        choice.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "<|hello|>"},
    ]
    last = client.chat.completions.create(model="writer", messages=messages, tools=[tool])
    assert last.choices[0].message.content == "Hello, world!", last
    with client.chat.completions.stream(
        model="writer", messages=[{"role": "user", "content": "<|call|>"}], tools=[tool]
    ) as stream:
        (streamed,) = stream.get_final_completion().choices[0].message.tool_calls
    assert (streamed.function.name, streamed.function.arguments) == (call.function.name, call.function.arguments)


if __name__ == "__main__":
    main(sys.argv[1])
