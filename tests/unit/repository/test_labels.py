from pathlib import Path

import pytest
from google.protobuf import text_format

from runners.errors import ConfigInvalid, Unsupported
from runners.repository.files import read_file
from runners.repository.labels import read_labels
from runners.repository.messages import ModelConfig


def config(label_file: str) -> ModelConfig:
    text = f'name: "m" output {{ name: "A" label_filename: "{label_file}" }} output {{ name: "B" }}'
    return text_format.Parse(text, ModelConfig())


@pytest.mark.parametrize(
    ("content", "labels"),
    [
        (b"", ()),
        (b"\n", ("",)),
        (b"cat", ("cat",)),
        (b"cat\ndog\n", ("cat", "dog")),
        (b"\ncat\n\n", ("", "cat", "")),
        ("chat \u4e32\r\n".encode(), ("chat \u4e32\r",)),
    ],
)
def test_a_line_is_a_label(tmp_path: Path, content: bytes, labels: tuple[str, ...]) -> None:
    (tmp_path / "labels.txt").write_bytes(content)
    assert read_labels(tmp_path, config("labels.txt")) == {"A": labels}


def test_outputs_without_a_file_have_no_labels(tmp_path: Path) -> None:
    assert read_labels(tmp_path, config("")) == {}


def test_a_file_may_lie_deeper_and_a_leading_slash_is_the_model_directory(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "labels.txt").write_text("cat\n")
    assert read_labels(tmp_path, config("/1/labels.txt")) == {"A": ("cat",)}
    assert read_labels(tmp_path, config("1/../1/labels.txt")) == {"A": ("cat",)}


def test_a_link_out_of_the_model_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("cat\n")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "labels.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(Unsupported, match="for output 'A' in model 'm' is outside model directory"):
        read_labels(tmp_path / "m", config("labels.txt"))


def test_a_file_that_is_too_long_or_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_bytes(b"\xff")
    with pytest.raises(ConfigInvalid, match="of output 'A' is no UTF-8 text"):
        read_labels(tmp_path, config("labels.txt"))
    (tmp_path / "labels.txt").write_bytes(b"x" * (16 * 1024 * 1024 + 1))
    with pytest.raises(ConfigInvalid, match="has more than 16777216 bytes"):
        read_labels(tmp_path, config("labels.txt"))


def test_one_file_for_many_outputs_counts_for_each(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_bytes(b"x" * (15 * 1024 * 1024))
    outputs = " ".join(f'output {{ name: "{name}" label_filename: "labels.txt" }}' for name in "ABC")
    many = text_format.Parse(f'name: "m" {outputs}', ModelConfig())
    with pytest.raises(ConfigInvalid, match="the labels of model 'm' have more than 33554432 characters"):
        read_labels(tmp_path, many)
    del many.output[2]
    assert len(read_labels(tmp_path, many)) == 2


def test_a_model_has_at_most_two_million_lines_of_labels(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_bytes(b"\n" * 1_000_000)
    outputs = " ".join(f'output {{ name: "{name}" label_filename: "labels.txt" }}' for name in "ABC")
    many = text_format.Parse(f'name: "m" {outputs}', ModelConfig())
    expected = "^the labels of model 'm' have more than 2000000 lines, each output counted that names them$"
    with pytest.raises(ConfigInvalid, match=expected):
        read_labels(tmp_path, many)
    del many.output[2]
    assert [len(labels) for labels in read_labels(tmp_path, many).values()] == [1_000_000] * 2
    (tmp_path / "labels.txt").write_bytes(b"\n" * (16 * 1024 * 1024))
    with pytest.raises(ConfigInvalid, match=expected):
        read_labels(tmp_path, many)


def test_a_file_that_many_outputs_name_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    read: list[Path] = []

    def watched(path: Path, kind: str, *, within: Path | None = None) -> bytes:
        read.append(path)
        return read_file(path, kind, within=within)

    monkeypatch.setattr("runners.repository.labels.read_file", watched)
    outputs = " ".join(f'output {{ name: "{number}" label_filename: "labels.txt" }}' for number in range(100))
    labels = read_labels(tmp_path, text_format.Parse(f'name: "m" {outputs}', ModelConfig()))
    assert (len(labels), len({id(one) for one in labels.values()}), set(labels.values())) == (100, 1, {("cat", "dog")})
    assert read == [tmp_path / "labels.txt"]
