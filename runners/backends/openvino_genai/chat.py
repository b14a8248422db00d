"""The chat template of a generative model, and the form in which the model calls tools"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import ConfigInvalid
from .files import read_file, read_object

__all__ = ["FORMS", "Chats", "chats_of_directory", "chats_of_gguf"]

FORMS = ("hermes", "llama", "none")
_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_OF_GGUF = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}
_USUAL, _WITH_TOOLS = "default", "tool_use"


@dataclass(frozen=True)
class Chats:
    """What a model's files say of chats"""

    template: str | None
    tool_template: str | None
    """Where tools are offered, if it is another one"""
    special: Sequence[tuple[str, str]]
    """Special tokens, by the names that templates have for them"""

    def options(self, form: str | None) -> dict[str, object]:
        """As the native crate reads them; `form`: in which the model calls tools, `None`: the template tells"""
        form = form or self._form()
        return {
            "template": self.template,
            "tool_template": self.tool_template,
            "special": list(self.special),
            "tool_calls": None if form == "none" else form,
        }

    def _form(self) -> str:
        text = self.tool_template or self.template or ""
        if "<function=" in text:
            # of Qwen 3 Coder, between the marks of Hermes
            return "none"
        if "<tool_call>" in text:
            return "hermes"
        return "llama" if "<|python_tag|>" in text or "ipython" in text else "none"


def chats_of_gguf(path: Path, metadata: Mapping[str, Any]) -> Chats:
    """A template beside the file comes before the one in it"""
    templates = {
        _USUAL: metadata.get("tokenizer.chat_template"),
        _WITH_TOOLS: metadata.get(f"tokenizer.chat_template.{_WITH_TOOLS}"),
    }
    tokens = metadata.get("tokenizer.ggml.tokens")
    known = tokens if isinstance(tokens, list) else []
    numbers = {name: metadata.get(f"tokenizer.ggml.{of}") for name, of in _OF_GGUF.items()}
    special = {
        name: known[number]
        for name, number in numbers.items()
        if isinstance(number, int) and number in range(len(known))
    }
    return _chats(path.parent, templates, special)


def chats_of_directory(directory: Path) -> Chats:
    """As the library transformers keeps them"""
    config = directory / "tokenizer_config.json"
    said = read_object(config) if config.is_file() else {}
    special: dict[str, object] = {}
    for name in _NAMES:
        token = said.get(name)
        special[name] = token.get("content") if isinstance(token, dict) else token
    return _chats(directory, _named(said.get("chat_template")), special)


def _chats(directory: Path, templates: Mapping[str, object], special: Mapping[str, object]) -> Chats:
    beside = _beside(directory)
    found = {name: text for name, text in (beside or templates).items() if isinstance(text, str)}
    tokens = [(name, token) for name, token in special.items() if isinstance(token, str)]
    return Chats(template=found.get(_USUAL), tool_template=found.get(_WITH_TOOLS), special=tokens)


def _beside(directory: Path) -> Mapping[str, object]:
    """Those in files of their own"""
    path = directory / "chat_template.jinja"
    if path.is_file():
        try:
            return {_USUAL: read_file(path).decode()}
        except UnicodeDecodeError as error:
            raise ConfigInvalid(f"'{path}' is not UTF-8: {error}") from error
    path = directory / "chat_template.json"
    return _named(read_object(path).get("chat_template")) if path.is_file() else {}


def _named(said: object) -> Mapping[str, object]:
    """One template, or a list of them with names"""
    if isinstance(said, list):
        return {str(one.get("name")): one.get("template") for one in said if isinstance(one, dict)}
    return {_USUAL: said}
