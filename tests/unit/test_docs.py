"""What the pages say exists: their links, the targets and flags in their commands, the generated reference."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from benchmarks.options import parser as benchmark_flags
from runners.commands import COMMANDS, Command
from runners.settings import SETTINGS
from runners.settings.absent import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
MAKEFILE: Final = (ROOT / "Makefile").read_text(encoding="utf-8")
# comments and characters are told apart first: both may have a quote in them
RUST_TEXT: Final = re.compile(r"""//[^\n]*|'(?:\\.|[^\\'])'|r#"(.*?)"#|"((?:[^"\\]|\\.)*)\"""", re.DOTALL)
SERVE_FLAGS: Final = {"--dry-run", *(f"--{one.flag}" for one in SETTINGS.values())}


def names(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" not in target:
            yield target


def commands(page: Path) -> Iterator[str]:
    """What the shell blocks and the inline code of a page tell the reader to run."""
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield from block.splitlines()
    for code in re.findall(r"`([^`\n]+)`", prose(page)):
        if code.startswith(("make ", "python ", ".venv/bin/python ", "kushi ")):
            yield code


def words(pattern: str) -> list[tuple[str, list[str]]]:
    """The commands of all pages that match, split as a shell splits them, with the page that has them."""
    found = [(page, command) for page in PAGES for command in commands(page) if re.match(pattern, command)]
    assert found, pattern
    return [(str(page.relative_to(ROOT)), shlex.split(command, comments=True)) for page, command in found]


def flags_of(command: Command) -> set[str]:
    parser = ArgumentParser()
    command.add_arguments(parser)
    return flags(parser.format_help().split())


def flags(arguments: list[str]) -> set[str]:
    return {argument.partition("=")[0] for argument in arguments if argument.startswith("--")}


def texts_of_python() -> Iterator[str]:
    """Every literal of the packages, with … for what is filled in"""
    for path in [path for package in ("preprocessing", "runners") for path in (ROOT / package).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def texts_of_rust() -> Iterator[str]:
    """The same of the native crates, without their tests"""
    for path in (ROOT / "native" / "crates").glob("*/src/**/*.rs"):
        source, *_ = re.split(r"#\[cfg\(test\)\]\s*mod ", path.read_text(encoding="utf-8"))
        for raw, text in RUST_TEXT.findall(source):
            yield raw or re.sub(r"\\\n\s*", "", text).replace('\\"', '"')


def messages(page: Path) -> list[str]:
    """What the first cells of the tables of a page quote"""
    cells = re.findall(r"^\| (.*?) \|", prose(page), re.MULTILINE)
    return [message for cell in cells for message in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file), target


def test_every_page_is_reached_from_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    reached = {(index.parent / target.partition("#")[0]).resolve() for target in links(index)} | {index}
    assert {page for page in PAGES if page.is_relative_to(index.parent)} <= reached


def test_the_generated_reference_is_what_the_code_says() -> None:
    command = [sys.executable, "-m", "docs.generate", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_make_targets_and_variables_exist() -> None:
    for page, (_, *arguments) in words(r"make "):
        for argument in arguments:
            variable, given, _ = argument.partition("=")
            pattern = rf"^{variable} \?=|\$\({variable}\)" if given else rf"^{argument}:"
            assert re.search(pattern, MAKEFILE, re.MULTILINE), (page, argument)


def test_flags_of_the_server_exist() -> None:
    serving = words(r"(\S*python -m kushi|\S*kushi) serve")
    through_make = [
        (page, shlex.split(word[5:])) for page, row in words(r"make serve-models") for word in row if "ARGS" in word
    ]
    for page, row in [*serving, *through_make]:
        assert flags(row) <= SERVE_FLAGS, page


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command.name))
def test_flags_of_commands_exist(command: Command) -> None:
    known = SERVE_FLAGS if command.name == "serve" else flags_of(command)
    for page, row in words(rf"\S*kushi {command.name}\b"):
        assert flags(row) <= known, page


def test_modules_that_are_run_exist_with_the_flags_of_the_benchmarks() -> None:
    known = benchmark_flags(None).format_help()
    for page, row in words(r"\S*python -m "):
        module = row[row.index("-m") + 1].replace("kushi.", "runners.").replace(".", "/")
        if module in {"kushi", "pytest", "venv"}:
            continue
        assert (ROOT / f"{module}.py").exists() or (ROOT / module / "__main__.py").exists(), (page, module)
        if module.startswith("benchmarks"):
            assert all(flag in known for flag in flags(row)), page


def test_flags_that_prose_names_exist() -> None:
    # the last are those of `bentoml serve`, `bentoml build` and `docker run`
    known = (
        {flag for command in COMMANDS for flag in flags_of(command)}
        | {f"--{flag}" for flag in ABSENT}
        | {*("--check", "--port", "--arg", "--cpus", "--ssl-certfile", "--ssl-keyfile", "--ssl-ciphers")}
    )
    for page in PAGES:
        named = set(re.findall(r"`(--[a-z0-9-]+)", prose(page)))
        if page.name != "serve.md":
            assert named <= known, page


def test_messages_that_are_explained_exist() -> None:
    texts = "\0".join([*texts_of_python(), *texts_of_rust()])
    quoted = messages(ROOT / "docs" / "troubleshooting.md")
    assert len(quoted) > 50
    for message in quoted:
        parts = [re.escape(part) for part in message.split("…") if part]
        assert len("".join(parts)) > 10, message
        # within one text: what stands between the parts is no end of it
        assert re.search(r"[^\0]*?".join(parts), texts), message
