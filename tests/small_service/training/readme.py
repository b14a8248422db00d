"""README.md beside this file: one section per script, each written by its own and left alone by the others."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["write_section"]

PAGE = Path(__file__).with_name("README.md")
SECTIONS = ("digits", "toneact", "preprocessing")
INTRODUCTION = """\
# Training

The models in `model_repository/` were trained here, with data that comes along with the packages named below: no
download. This page is written by the scripts; change them, not it.
"""


def write_section(name: str, text: str) -> None:
    """`text` is what stands under the heading; sections that were not written yet are left out of the page."""
    sections = _sections() | {name: text.strip()}
    unknown = sections.keys() - set(SECTIONS)
    if unknown:
        raise ValueError(f"{PAGE.name}: expected the sections {', '.join(SECTIONS)}, got {', '.join(sorted(unknown))}")
    written = [f"## {section}\n\n{sections[section]}\n" for section in SECTIONS if section in sections]
    PAGE.write_text("\n".join([INTRODUCTION, *written]), encoding="utf-8")


def _sections() -> dict[str, str]:
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    _, *parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}
