"""Small PDFs: a page of what its content draws, with Helvetica and a grey picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from runners.uploads.pdf_writer import PlacedWord

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["pdf", "placed", "said"]


def said(text: str, x: float, y: float, size: float) -> str:
    """Black letters, from there on"""
    return f"BT 0 g /F {size} Tf {x} {y} Td ({text}) Tj ET"


def placed(text: str) -> PlacedWord:
    """In the midst of a page of 300 × 300"""
    return PlacedWord(text, np.array([(50.0, 120.0), (250.0, 120.0), (250.0, 100.0), (50.0, 100.0)]))


def pdf(
    content: Sequence[str],
    size: tuple[float, float],
    *,
    more: str = "",
    picture: tuple[float, float, float, float] | None = None,
    locked: bool = False,
    objects: Sequence[str] = (),
) -> bytes:
    """
    One page

    content: its operators, one after the other
    more: of its dictionary
    objects: more of them, from number 7 on
    picture: left, bottom, right and top of a grey one below the content
    """
    drawn = "\n".join(content)
    if picture:
        left, bottom, right, top = picture
        drawn = f"q {right - left} 0 0 {top - bottom} {left} {bottom} cm /P Do Q\n{drawn}"
    image = "/Type/XObject/Subtype/Image/Width 1/Height 1/ColorSpace/DeviceGray/BitsPerComponent 8"
    named = "/Font<</F 5 0 R>>/XObject<</P 6 0 R>>"
    written_objects = [
        "<</Type/Catalog/Pages 2 0 R>>",
        "<</Type/Pages/Count 1/Kids[3 0 R]>>",
        f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 {size[0]} {size[1]}]/Contents 4 0 R/Resources<<{named}>>{more}>>",
        f"<</Length {len(drawn)}>>stream\n{drawn}\nendstream",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        f"<<{image}/Length 1>>stream\n\x7f\nendstream",
        *objects,
    ]
    out, places = "%PDF-1.7\n", []
    for number, written in enumerate(written_objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{written}\nendobj\n"
    begin = len(out)
    out += f"xref\n0 {len(written_objects) + 1}\n0000000000 65535 f \n" + "".join(
        f"{place:010} 00000 n \n" for place in places
    )
    lock = f"/Encrypt<</Filter/Standard/V 1/R 2/P -4/O<{'4a' * 32}>/U<{'b7' * 32}>>>/ID[<{'11' * 16}><{'11' * 16}>]"
    out += (
        f"trailer<</Size {len(written_objects) + 1}/Root 1 0 R{lock if locked else ''}>>\nstartxref\n{begin}\n%%EOF\n"
    )
    return out.encode("latin-1")
