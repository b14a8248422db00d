"""
The pages as a website: `make site`, then open build/site/index.html.

Every page that the README leads to is in it, and so is every file of the repository that a page links to, as a page
that shows it. What a link leads to is looked for in what was built.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["broken_links", "main"]

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = ROOT / "docs" / "site.toml"
BUILT = ROOT / "build" / "site"
PAGES = ROOT / "build" / "site-pages"
_LINK = re.compile(r"(?<=\]\()[^)\s]+(?=\))")
_PICTURE = re.compile(r'(?:src|srcset)="([^"]+)"')
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}


def main() -> int:
    for before in (PAGES, BUILT):
        shutil.rmtree(before, ignore_errors=True)
    _write_pages()
    settings = SETTINGS.read_text(encoding="utf-8").replace("nav = []", f"nav = [{', '.join(_contents())}]")
    PAGES.with_suffix(".toml").write_text(settings, encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "--config-file"]
    subprocess.run([*command, PAGES.with_suffix(".toml")], cwd=PAGES.parent, check=True)  # noqa: S603 - ours
    broken = sorted(broken_links(BUILT))
    for page, target in broken:
        sys.stderr.write(f"{page}: nothing is at {target}\n")
    sys.stdout.write(f"open {BUILT / 'index.html'}\n")
    return 1 if broken else 0


def _write_pages() -> None:
    """Everything that the README leads to, laid out as in the repository"""
    waiting, written = [ROOT / "README.md"], set[Path]()
    while waiting:
        source = waiting.pop()
        if source in written:
            continue
        written.add(source)
        target = PAGES / _page_of(source).relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix in {".png", ".svg"}:
            shutil.copy(source, target)
            continue
        text = source.read_text(encoding="utf-8") if source.is_file() else _listing(source)
        if source.suffix == ".md" or source.is_dir():
            waiting += _targets(text, source)
            text = _relinked(text, source)
        else:
            text = f"# {source.relative_to(ROOT)}\n\n````{_LANGUAGES.get(source.suffix, 'text')}\n{text}````\n"
        target.write_text(text, encoding="utf-8")


def _contents() -> Iterator[str]:
    """The list of pages beside each page: that of docs/README.md, by its headings"""
    index = ROOT / "docs" / "README.md"
    yield f"{{ Kushi = {json.dumps('index.md')} }}"
    for section in re.split(r"^## ", index.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        listed = re.findall(r"(?:^\| |^\d+\. | · )\[(.+?)\]\((\S+?)\)", body, re.MULTILINE)
        pages = [(name.replace("`", ""), _page_of((index.parent / link).resolve())) for name, link in listed]
        rows = (f"{{ {json.dumps(name)} = {json.dumps(str(page.relative_to(ROOT)))} }}" for name, page in pages)
        yield f"{{ {json.dumps(title)} = [{', '.join(rows)}] }}"


def _page_of(source: Path) -> Path:
    """Where the page of a file or folder lies, as if it lay in the repository"""
    if source.is_dir():
        return source / "files.md"
    if source.suffix in {".md", ".png", ".svg"}:
        return source.with_name("index.md") if source.name == "README.md" else source
    return source.with_name(f"{source.name}.md")


def _listing(folder: Path) -> str:
    inside = sorted(path for path in folder.iterdir() if not path.name.startswith(("_", ".")))
    links = (f"* [{path.name}]({path.name})\n" for path in inside if path.is_dir() or path.suffix != ".pyc")
    return f"# {folder.relative_to(ROOT)}\n\n" + "".join(links)


def _base(source: Path) -> Path:
    return source if source.is_dir() else source.parent


def _targets(text: str, source: Path) -> Iterator[Path]:
    prose = _FENCED.sub("", text)
    for link in [*_LINK.findall(prose), *_PICTURE.findall(prose)]:
        if "://" not in link and (path := link.partition("#")[0]):
            yield (_base(source) / path).resolve(strict=True)


def _relinked(text: str, source: Path) -> str:
    """With links to the pages in the place of links to the files"""

    def page(link: re.Match[str]) -> str:
        path, sharp, anchor = link[0].partition("#")
        if "://" in path or not path:
            return link[0]
        found = _page_of((_base(source) / path).resolve())
        return f"{os.path.relpath(found, _base(source))}{sharp}{anchor}"

    return "".join(part if part.startswith("```") else _LINK.sub(page, part) for part in _FENCED.split(text))


class _Page(HTMLParser):
    """What a built page links to, and what it can be linked to by"""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in {"href", "src", "srcset"} and value and tag != "base":
                self.links.append(value)
            elif name in {"id", "name"} and value:
                self.anchors.add(value)


def broken_links(built: Path) -> Iterator[tuple[str, str]]:
    """Each page and link that leads to no file, or to no heading of one; links to elsewhere are not followed"""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in built.rglob("*.html") if path.name != "404.html"}
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            there = target.is_file() and (
                not parts.fragment or (target in pages and unquote(parts.fragment) in pages[target].anchors)
            )
            if not there:
                yield str(path.relative_to(built)), link


if __name__ == "__main__":
    sys.exit(main())
