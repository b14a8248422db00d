"""The text of networks of OpenVINO's own format: what would become long, or take long, is refused where it is read"""

from __future__ import annotations

from concurrent.futures import Future
from contextvars import copy_context
from typing import TYPE_CHECKING

import pytest

from runners.backends.openvino import network_text
from runners.backends.openvino.constants import check_constants
from runners.backends.openvino.network_text import read_network
from runners.backends.openvino.strings import check_strings
from runners.errors import ConfigInvalid, KushiError, ModelUnavailable, Unsupported
from runners.wanted import work_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STRINGS = [("x", "BYTES", [1])]
ENTITIES = '<?xml version="1.0"?><!DOCTYPE net [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><net name="&b;"/>'
CHECKS: list[tuple[Callable[[Path], None], type[KushiError], str]] = [
    (check_constants, ConfigInvalid, "its constants cannot be read"),
    (lambda path: check_strings(path, STRINGS), Unsupported, "and its operators cannot be read"),
]


def tags(path: Path) -> list[str]:
    seen: list[str] = []
    with path.open("rb") as file:
        read_network(
            file, lambda tag, attributes: seen.append(f"{tag} {attributes}"), lambda tag: seen.append(f"/{tag}")
        )
    return seen


def written(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_text(text, encoding=encoding)
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_text_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    monkeypatch.setattr(network_text, "_PIECE_BYTES", 3)
    path = written(tmp_path / "model.xml", '<net a="1"><!-- no <tag> --><layer b="ü">x</layer></net>', encoding)
    assert tags(path) == ["net {'a': '1'}", "layer {'b': 'ü'}", "/layer", "/net"]


@pytest.mark.parametrize(("check", "error", "text"), CHECKS, ids=["constants", "strings"])
@pytest.mark.parametrize(
    "network",
    [ENTITIES, '<!DOCTYPE net SYSTEM "file:///etc/passwd"><net/>', "<!DOCTYPE net><net/>"],
    ids=["entities", "elsewhere", "empty"],
)
def test_a_document_type_is_refused(
    tmp_path: Path, network: str, check: Callable[[Path], None], error: type[KushiError], text: str
) -> None:
    path = written(tmp_path / "model.xml", network)
    with pytest.raises(error, match=rf"{text}: its text has a document type \('net'\), which no network has$"):
        check(path)


@pytest.mark.parametrize(("check", "error", "text"), CHECKS, ids=["constants", "strings"])
def test_a_text_that_is_longer_than_any_is_not_read(
    tmp_path: Path, check: Callable[[Path], None], error: type[KushiError], text: str
) -> None:
    path = written(tmp_path / "model.xml", "<net>")
    with path.open("ab") as file:
        # the rest is a hole
        file.truncate(64 << 30)
    with pytest.raises(error, match=f"{text}: its text has 68719476736 bytes, expected at most 268435456$"):
        check(path)


@pytest.mark.parametrize("begin", ['<net a="', "<net/><!--", "<net><?what ", "<net><"])
def test_a_tag_that_does_not_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: str) -> None:
    monkeypatch.setattr(network_text, "_PIECE_BYTES", 16)
    monkeypatch.setattr(network_text, "_MOST_TAG_BYTES", 64)
    path = written(tmp_path / "model.xml", begin + "x" * 1000)
    with pytest.raises(ValueError, match=r"^its text has a tag of more than 64 bytes$"):
        tags(path)
    # what is no tag may be longer
    assert tags(written(path, f"<net>{'x' * 1000}</net>")) == ["net {}", "/net"]


def test_an_operator_with_strings_is_found_where_it_is(tmp_path: Path) -> None:
    port = '<output><port id="0" precision="STRING"/></output>'
    path = tmp_path / "model.xml"
    body = '<body><layers><layer name="inner" type="{}">{}</layer></layers></body>'
    outer = f'<net><layers><layer name="outer" type="Loop">{body}</layer></layers></net>'
    check_strings(written(path, outer.format("Parameter", port)), STRINGS)
    check_strings(written(path, outer.format("Concat", "")), STRINGS)
    with pytest.raises(Unsupported, match="operator 'inner' of type Concat would free strings"):
        check_strings(written(path, outer.format("Concat", port)), STRINGS)
    with pytest.raises(Unsupported, match="operator 'outer' of type Loop would free strings"):
        check_strings(written(path, outer.format("Parameter", "").replace("<body>", f"<body>{port}")), STRINGS)


def test_a_text_is_read_no_further_when_its_load_is_given_up(tmp_path: Path) -> None:
    path = written(tmp_path / "model.xml", f"<net>{' ' * (3 * 1024 * 1024)}</net>")
    seen: list[str] = []

    def reading() -> None:
        step: Future[None] = Future()
        work_for(step)

        def begin(tag: str, _: dict[str, str]) -> None:
            seen.append(tag)
            step.cancel()

        with path.open("rb") as file, pytest.raises(ModelUnavailable, match="the load was given up"):
            read_network(file, begin, lambda tag: seen.append(f"/{tag}"))

    copy_context().run(reading)
    assert seen == ["net"]


def test_a_text_that_is_nested_deeply_is_refused(tmp_path: Path) -> None:
    deep = written(tmp_path / "deep.xml", "<a>" * 1001 + "</a>" * 1001)
    with pytest.raises(ValueError, match=r"^its text is nested more than 1000 tags deep$"):
        tags(deep)
    assert len(tags(written(tmp_path / "model.xml", "<a>" * 1000 + "</a>" * 1000))) == 2000


@pytest.mark.parametrize(("check", "error", "text"), CHECKS, ids=["constants", "strings"])
def test_a_coding_that_is_none_is_an_error_of_the_text(
    tmp_path: Path, check: Callable[[Path], None], error: type[KushiError], text: str
) -> None:
    path = written(tmp_path / "model.xml", '<?xml version="1.0" encoding="zlib"?><net/>')
    with pytest.raises(error, match=text):
        check(path)
