"""LangChain's chats of OpenAI: whole, as streams, and with tools"""

import sys

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def add(a: int) -> str:
    """Adds."""
    return str(a)


def main(http: str) -> None:
    model = ChatOpenAI(model="writer", base_url=f"http://{http}/v1", api_key="none", max_retries=0, stream_usage=True)
    answer = model.invoke("<|hello|>")
    assert answer.content == "Hello, world!", answer
    assert answer.usage_metadata["total_tokens"] > 0
    assert "".join(str(chunk.content) for chunk in model.stream("<|hello|>")) == "Hello, world!"
    asked = HumanMessage("<|call|>")
    called = model.bind_tools([add]).invoke([asked])
    (call,) = called.tool_calls
    assert (call["name"], call["args"]) == ("add", {"a": 1}), called
    last = model.bind_tools([add]).invoke([asked, called, ToolMessage("<|hello|>", tool_call_id=call["id"])])
    assert last.content == "Hello, world!", last


if __name__ == "__main__":
    main(sys.argv[1])
