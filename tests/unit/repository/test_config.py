import contextlib
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runners.errors import ConfigInvalid
from runners.repository.config import parse, read
from runners.repository.messages import DataType

BACKSLASHES = "\\"


def test_a_configuration_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_text('name: "m"  # a comment\ninput [ { name: "X", data_type: TYPE_FP16, dims: [ 3, -1 ] } ]\n')
    config = read(path)
    assert config.name == "m"
    assert [(t.name, t.data_type, list(t.dims)) for t in config.input] == [("X", DataType.Value("TYPE_FP16"), [3, -1])]


@pytest.mark.parametrize("line", ["#" * 200_000 + '"', "x" * 200_000, "x" * 200_000 + "!", " " * 200_000 + "!"])
def test_a_line_of_any_length_before_a_fault_is_looked_at_once(line: str) -> None:
    # what looked at the rest of it from each character took hours
    with pytest.raises(ConfigInvalid):
        parse(f"{line}\n}}", "c")
    with pytest.raises(ConfigInvalid):
        parse(f'name: "m" {line}:\n}}', "c")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_batch_sise: 2", "c:1:1: ModelConfig has no field 'max_batch_sise', did you mean 'max_batch_size'?"),
        ('name: "m"\n\n  zzz: 2', "c:3:3: ModelConfig has no field 'zzz', expected one of backend, batch_input"),
        ('input { nam: "X" }', "c:1:9: ModelInput has no field 'nam', did you mean 'name'?"),
        ("input { data_type: FP32 }", "c:1:20: DataType has no value 'FP32', did you mean 'TYPE_FP32'?"),
        ("instance_group { kind: KIND_C }", "Kind has no value 'KIND_C', did you mean 'KIND_CPU'?"),
        ('max_batch_size: "8"', "c:1:17: field 'max_batch_size': couldn't parse integer: \"8\""),
        ("max_batch_size: 99999999999", "field 'max_batch_size': value out of range"),
        ("max_batch_size: 1 max_batch_size: 2", 'should not have multiple "max_batch_size" fields'),
        ("name: 3", "c:1:7: field 'name': expected string but found: '3', in: name: 3"),
        ("dynamic_batching: 4", "c:1:19: field 'dynamic_batching': expected \"{\""),
        (
            "dynamic_batching { }\nsequence_batching { }",
            "c:2:1: 'dynamic_batching' and 'sequence_batching' exclude each other, expected only one of them",
        ),
        (
            "version_policy { all { } latest { } }",
            "c:1:26: 'all' and 'latest' exclude each other, expected only one of them",
        ),
        ("input { dims: [ 1.5 ] }", "field 'dims': couldn't parse integer: 1.5"),
        ("input { data_type: TYPE_BYTES }", "DataType has no value 'TYPE_BYTES', did you mean 'TYPE_STRING'?"),
        ('name: "m"\n  max_batch_size:\n\ninput [ ]', "c:2:3: field 'max_batch_size' has no value"),
        ("max_batch_size:  # rows\ninput { }", "c:1:1: field 'max_batch_size' has no value"),
        ("instance_group { kind: }", "c:1:18: field 'kind' has no value"),
        ("max_batch_size:", "c:1:1: field 'max_batch_size' has no value"),
        ("input {", 'expected "}"'),
        ("}", "expected identifier or number, got }"),
    ],
)
def test_an_error_names_file_line_column_and_field(text: str, message: str) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        parse(text, "c")
    assert message in str(raised.value)
    assert str(raised.value).startswith("c:")
    assert "\n" not in str(raised.value)


PLAIN = """name: "m"
max_batch_size: 8  # rows
input [ { name: "X" data_type: TYPE_FP32 dims: [ 3, -1 ] reshape { shape: [ 3, -1 ] } } ]
dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 100 }
parameters { key: "a" value: { string_value: "b\\x41" } }
"""


# protobuf decodes an unknown escape as Python does, which warns and keeps it
UNKNOWN_ESCAPE = pytest.mark.filterwarnings("ignore:invalid .*escape sequence:DeprecationWarning")


@UNKNOWN_ESCAPE
@given(st.text() | st.text("{}[]<>:;,#\"'\\0x1e-naminput_dt \n"))
def test_any_text_is_a_configuration_or_an_error_on_one_line(text: str) -> None:
    message = "c:"
    try:
        parse(text, "c")
    except ConfigInvalid as error:
        message = str(error)
    assert message.startswith("c:")
    assert "\n" not in message


@UNKNOWN_ESCAPE
@example(PLAIN.index("x41"), "4")
@given(st.integers(0, len(PLAIN) - 1), st.characters(codec="utf-8") | st.just(""))
def test_a_configuration_with_one_character_changed_is_one_or_an_error(at: int, character: str) -> None:
    with contextlib.suppress(ConfigInvalid):
        parse(PLAIN[:at] + character + PLAIN[at + 1 :], "c")


def test_backslashes_without_end_are_refused_at_once() -> None:
    for text in (f'parameters {{ key: "{BACKSLASHES * 65}" }}', f'name: "a{BACKSLASHES * 900_000}x1"'):
        with pytest.raises(ConfigInvalid, match=r"^c: more than 64 backslashes in a row$"):
            parse(text, "c")
    assert parse(f'name: "{BACKSLASHES * 64}"', "c").name == BACKSLASHES * 32


def test_text_that_is_not_utf8_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_bytes(b'name: "\xff"')
    with pytest.raises(ConfigInvalid, match=r"config\.pbtxt: expected UTF-8 text, got byte 0xff"):
        read(path)


def test_a_directory_in_place_of_the_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="cannot be read"):
        read(tmp_path)


@pytest.mark.parametrize(
    "content", ['{"token": "very secret"}', "very secret", "very: secret", "-----BEGIN very secret"]
)
def test_nothing_of_a_file_elsewhere_is_shown(tmp_path: Path, content: str) -> None:
    """Whoever may place a link need not be allowed to read what it leads to"""
    (tmp_path / "elsewhere").write_text(content)
    directory = tmp_path / "m"
    directory.mkdir()
    (directory / "config.pbtxt").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigInvalid, match="no configuration; none of its words are shown") as raised:
        read(directory / "config.pbtxt")
    assert "secret" not in str(raised.value)


def test_a_link_within_the_directory_is_explained_as_any_file(tmp_path: Path) -> None:
    """As volumes of Kubernetes are made"""
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "config.pbtxt").write_text("max_batch: 4")
    (tmp_path / "config.pbtxt").symlink_to("..data/config.pbtxt")
    with pytest.raises(ConfigInvalid, match="has no field 'max_batch'"):
        read(tmp_path / "config.pbtxt")
