"""Where a chat template is found, and the form in which a model calls tools."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from runners import ConfigInvalid
from runners.backends.openvino_genai.chat import chats_of_directory, chats_of_gguf

if TYPE_CHECKING:
    from pathlib import Path

METADATA = {
    "tokenizer.chat_template": "in the file",
    "tokenizer.chat_template.tool_use": "with tools",
    "tokenizer.ggml.tokens": ["<s>", "</s>", "a"],
    "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.ggml.eos_token_id": 1,
    "tokenizer.ggml.padding_token_id": 9,
}


def test_a_file_of_gguf_has_its_own(tmp_path: Path) -> None:
    chats = chats_of_gguf(tmp_path / "model.gguf", METADATA)
    assert (chats.template, chats.tool_template) == ("in the file", "with tools")
    assert chats.special == [("bos_token", "<s>"), ("eos_token", "</s>")]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("chat_template.jinja", "beside"),
        ("chat_template.json", json.dumps({"chat_template": "beside"})),
        ("chat_template.json", json.dumps({"chat_template": [{"name": "default", "template": "beside"}]})),
    ],
)
def test_one_beside_it_comes_first(tmp_path: Path, file: str, content: str) -> None:
    (tmp_path / file).write_text(content)
    for chats in (chats_of_gguf(tmp_path / "model.gguf", METADATA), chats_of_directory(tmp_path)):
        assert (chats.template, chats.tool_template) == ("beside", None)


def test_a_directory_has_it_in_the_configuration_of_its_tokenizer(tmp_path: Path) -> None:
    templates = [{"name": "default", "template": "usual"}, {"name": "tool_use", "template": "with tools"}]
    tokens = {"bos_token": "<s>", "eos_token": {"content": "</s>", "special": True}, "unk_token": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates, **tokens}))
    chats = chats_of_directory(tmp_path)
    assert (chats.template, chats.tool_template) == ("usual", "with tools")
    assert chats.special == [("bos_token", "<s>"), ("eos_token", "</s>")]


def test_there_need_be_none(tmp_path: Path) -> None:
    for chats in (chats_of_gguf(tmp_path / "model.gguf", {}), chats_of_directory(tmp_path)):
        options: dict[str, object] = {"template": None, "tool_template": None, "special": [], "tool_calls": None}
        assert chats.options(None) == options


@pytest.mark.parametrize(
    ("template", "stated", "form"),
    [
        ("{{ '<tool_call>' }}", None, "hermes"),
        ("{{ '<|python_tag|>' }}", None, "llama"),
        ("ipython", None, "llama"),
        ("{{ '<tool_call><function=' }}", None, None),
        ("{{ messages }}", None, None),
        ("{{ '<tool_call>' }}", "none", None),
        ("{{ messages }}", "llama", "llama"),
    ],
)
def test_the_template_tells_how_tools_are_called(
    tmp_path: Path, template: str, stated: str | None, form: str | None
) -> None:
    chats = chats_of_gguf(tmp_path / "model.gguf", {"tokenizer.chat_template": template})
    assert chats.options(stated)["tool_calls"] == form


@pytest.mark.parametrize(("file", "content"), [("chat_template.jinja", b"\xff"), ("tokenizer_config.json", b"{")])
def test_what_cannot_be_read_is_said(tmp_path: Path, file: str, content: bytes) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ConfigInvalid, match=file):
        chats_of_directory(tmp_path)


def test_what_is_no_template_is_none(tmp_path: Path) -> None:
    said: list[dict[str, Any]] = [{"chat_template": 1}, {"chat_template": [1, {"name": "default"}]}, {"bos_token": 1}]
    for one in said:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(one))
        assert chats_of_directory(tmp_path).options(None)["template"] is None
