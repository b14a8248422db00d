"""The website of the pages: a link that leads nowhere is found"""

from __future__ import annotations

from typing import TYPE_CHECKING

from docs.site import broken_links

if TYPE_CHECKING:
    from pathlib import Path


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    good = ["b/index.html", "b/", "b/index.html#there", "picture.png", "#here", "https://elsewhere.example/x"]
    broken = ["b/index.html#gone", "c.html", "#nowhere", "b/other.png"]
    (tmp_path / "b").mkdir()
    (tmp_path / "b/index.html").write_text('<h2 id="there">There</h2>')
    (tmp_path / "picture.png").write_bytes(b"")
    links = "".join(f'<a href="{link}">x</a>' for link in [*good, *broken])
    (tmp_path / "index.html").write_text(f'<h1 id="here">Here</h1>{links}')
    assert sorted(broken_links(tmp_path)) == sorted(("index.html", link) for link in broken)
