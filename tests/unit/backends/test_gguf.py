"""What is read of GGUF files, and what is made of it"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

import pytest
from gguf import GGUFReader
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from runners.backends.openvino_genai.facts import read_facts
from runners.backends.openvino_genai.gguf import read_metadata
from runners.backends.openvino_genai.gguf_tokenizer import ends_of, tokenizer_json
from runners.errors import ConfigInvalid, Unsupported
from tests.generative import CONTEXT, END_ID, ids_of, write_model

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("gguf") / "model.gguf")


def test_the_metadata_is_that_of_the_library(path: Path) -> None:
    fields = {name: field for name, field in GGUFReader(path).fields.items() if not name.startswith("GGUF.")}
    found = read_metadata(path)
    assert set(found) == set(fields)
    assert {name: field.contents() for name, field in fields.items()} == found


def test_an_answer_ends_with_what_is_stated_and_with_tokens_of_such_a_name() -> None:
    tokens = ["a", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|im_end|>"]
    said = {"eos_token_id": 1, "tokens": tokens, "token_type": [1, 3, 3, 3, 1]}
    found = ends_of({f"tokenizer.ggml.{name}": value for name, value in said.items()})
    assert [end for end in found if end is not None] == [1, 2, 3]
    assert [end for end in ends_of({}) if end is not None] == []


def test_a_file_says_how_large_its_model_is(path: Path) -> None:
    facts = read_facts(path)
    assert (facts.context, facts.ends, facts.vocabulary) == (CONTEXT, [END_ID], END_ID + 1)
    # two layers, keys and values of two heads with 16 numbers each
    assert facts.numbers_of_token == 2 * 2 * 2 * 16


def test_a_file_that_ends_anywhere_is_refused(path: Path, tmp_path: Path) -> None:
    whole = path.read_bytes()
    length = next(length for length in range(0, len(whole), 512) if _reads(tmp_path, whole[:length]))
    for end in {*range(64), *range(0, length - 512, 97)}:
        assert not _reads(tmp_path, whole[:end])


def _reads(directory: Path, content: bytes) -> bool:
    cut = directory / "cut.gguf"
    cut.write_bytes(content)
    try:
        read_metadata(cut)
    except ConfigInvalid as error:
        assert "cannot be read as GGUF" in str(error)  # noqa: PT017 - what it is if it is one
        return False
    return True


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=8))
def test_whatever_a_file_says_it_is_read_or_refused(path: Path, changes: list[tuple[int, int]]) -> None:
    whole = bytearray(path.read_bytes()[:16_384])
    for place, byte in changes:
        whole[place] = byte
    _reads(path.parent, bytes(whole))


def test_long_lists_that_are_not_there_take_no_memory(tmp_path: Path) -> None:
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"a"
    for kind in (4, 8, 12):
        assert not _reads(tmp_path, head + struct.pack("<IIQ", 9, kind, 16 << 20))
        assert not _reads(tmp_path, head + struct.pack("<IIQ", 9, kind, 1 << 60))
    assert not _reads(tmp_path, head + struct.pack("<IQ", 8, 1 << 60))


TEXTS = (
    "the cat sat",
    "  two  spaces ",
    "don't 1234 stop",
    "\u00e4\u00f6\u2603\U0001f600",
    "a\n\n b\r\n",
    "",
    "<|end|>x",
)


def test_its_tokenizer_makes_the_tokens_that_the_library_makes(path: Path) -> None:
    made = Tokenizer.from_str(tokenizer_json(read_metadata(path)).decode())
    for text in TEXTS[:-1]:
        assert made.encode(text).ids == ids_of(text)
        assert made.decode(made.encode(text).ids) == text
    assert made.encode(TEXTS[-1]).ids == [END_ID, *ids_of("x")]


@pytest.mark.parametrize(
    ("pieces", "text", "expected"),
    [
        ("gpt-2", "a1234 b", ["a", "1234", " b"]),
        ("smollm", "a1234 b", ["a", "1", "2", "3", "4", " b"]),
        ("llama-bpe", "a1234 b", ["a", "123", "4", " b"]),
        ("qwen2", "a1234 b", ["a", "1", "2", "3", "4", " b"]),
        ("llama-bpe", "I'LL  go\n\n", ["I", "'LL", " ", " go", "\n\n"]),
    ],
)
def test_texts_are_taken_into_pieces_as_the_file_says(path: Path, pieces: str, text: str, expected: list[str]) -> None:
    metadata = {**read_metadata(path), "tokenizer.ggml.pre": pieces}
    made = Tokenizer.from_str(tokenizer_json(metadata).decode())
    places = [place for _, place in made.pre_tokenizer.pre_tokenize_str(text)]
    assert [text[begin:end] for begin, end in places] == expected


def test_a_text_may_begin_with_a_token_of_its_own(path: Path) -> None:
    metadata = {**read_metadata(path), "tokenizer.ggml.add_bos_token": True}
    made = Tokenizer.from_str(tokenizer_json(metadata).decode())
    assert made.encode("the cat").ids == [END_ID - 1, *ids_of("the cat")]
    assert made.decode(made.encode("the cat").ids) == "the cat"


def test_llama_3_begins_so_where_the_file_does_not_say(path: Path) -> None:
    metadata = {**read_metadata(path), "tokenizer.ggml.pre": "llama-bpe"}
    del metadata["tokenizer.ggml.add_bos_token"]
    assert Tokenizer.from_str(tokenizer_json(metadata).decode()).encode("a").ids[0] == END_ID - 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"tokenizer.ggml.model": "llama"}, "is of the kind 'llama'"),
        ({"tokenizer.ggml.pre": "unheard-of"}, "as 'unheard-of' does, which is unknown here"),
        ({"tokenizer.ggml.merges": None}, "it has no tokens or no merges"),
        ({"tokenizer.ggml.tokens": "abc"}, "it has no tokens or no merges"),
        ({"tokenizer.ggml.token_type": 3}, "it has no tokens or no merges"),
    ],
)
def test_tokenizers_of_other_kinds_are_refused_by_name(path: Path, change: dict[str, object], text: str) -> None:
    with pytest.raises(Unsupported, match=text):
        tokenizer_json({**read_metadata(path), **change})


def test_a_directory_says_the_same_in_its_files(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    said = {
        "hidden_size": 64,
        "max_position_embeddings": 100,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "vocab_size": 10,
        "eos_token_id": 3,
    }
    (tmp_path / "config.json").write_text(json.dumps(said))
    facts = read_facts(tmp_path / "openvino_model.xml")
    assert (facts.context, facts.ends, facts.vocabulary, facts.numbers_of_token) == (100, [3], 10, 128)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [4, 5, 10]}')
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {**said, "head_dim": 8}}))
    facts = read_facts(tmp_path / "openvino_model.xml")
    assert (facts.ends, facts.numbers_of_token) == ([4, 5], 64)
    for name in said:
        if name not in {"eos_token_id", "num_key_value_heads"}:
            (tmp_path / "config.json").write_text(json.dumps({key: said[key] for key in said if key != name}))
            with pytest.raises(ConfigInvalid, match=f"must say '{name}', a number"):
                read_facts(tmp_path / "openvino_model.xml")
    for name in ("num_key_value_heads", "head_dim", "num_hidden_layers"):
        for wrong in ("x", [1], -1, 0.5, 10**60):
            (tmp_path / "config.json").write_text(json.dumps({**said, name: wrong}))
            with pytest.raises(ConfigInvalid, match=f"must say '{name}', a number"):
                read_facts(tmp_path / "openvino_model.xml")
    (tmp_path / "config.json").write_text(json.dumps({**said, "text_config": None, "hidden_size": 2}))
    with pytest.raises(ConfigInvalid, match="must say 'head_dim'"):
        read_facts(tmp_path / "openvino_model.xml")
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": null}')
    (tmp_path / "config.json").write_text(json.dumps({**said, "text_config": None}))
    assert read_facts(tmp_path / "openvino_model.xml").ends == [3]
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ConfigInvalid, match="is no JSON object"):
        read_facts(tmp_path / "openvino_model.xml")
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ConfigInvalid, match=r"has no tokenizer\.json"):
        read_facts(tmp_path / "openvino_model.xml")
