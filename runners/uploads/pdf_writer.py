"""
A PDF of pictures with words over them that are not seen, but found, marked and copied.

The words are of a font whose letters draw nothing. It is of PDF's type 3, which needs no font file, and has as many
parts as it takes to name the document's characters, 255 each.
"""

from __future__ import annotations

import zlib
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["Picture", "PlacedWord", "Sheet", "written"]

_PART: Final = 255
"""Of a font: one byte says the character"""
_ADVANCE: Final = 500
"""Of every letter, in thousandths of its height; words are stretched to their place"""
_DESCENT: Final = 0.2
"""Of the height of a line, below its letters' feet"""
_BOX: Final = f"0 -200 {_ADVANCE} 800"
"""Of every letter"""
_MOST_NAMED: Final = 100
"""At once, in a table of what codes mean"""


class Picture(NamedTuple):
    data: bytes
    width: int
    height: int
    coding: str
    """Filter, colours and bits, as a PDF names them"""


class PlacedWord(NamedTuple):
    text: str
    corners: Floats
    """[4, 2], points, from the bottom of the page upwards; clockwise from the upper left one, as one reads"""


class Sheet(NamedTuple):
    box: tuple[float, float, float, float]
    """Left, bottom, right and top, in points"""
    words: Sequence[PlacedWord]
    picture: Picture | None = None


class _Fonts:
    def __init__(self, texts: Iterable[str]) -> None:
        self.characters = sorted({letter for text in texts for letter in text} | {" "})
        self._places = {letter: place for place, letter in enumerate(self.characters)}

    def parts(self) -> list[list[str]]:
        return [self.characters[begin : begin + _PART] for begin in range(0, len(self.characters), _PART)]

    def coded(self, text: str) -> Iterable[tuple[int, bytes]]:
        """Part and codes of letters that follow one another"""
        places = [divmod(self._places[letter], _PART) for letter in text]
        for part, run in groupby(places, key=lambda place: place[0]):
            yield part, bytes(code + 1 for _, code in run)


class _Objects:
    def __init__(self) -> None:
        self._objects: list[bytes] = []

    def add(self, content: bytes = b"") -> int:
        self._objects.append(content)
        return len(self._objects)

    def set(self, number: int, content: bytes) -> None:
        self._objects[number - 1] = content

    def stream(self, data: bytes, head: str = "", *, packed: bool = False) -> int:
        if not packed:
            data, head = zlib.compress(data), f"{head}/Filter/FlateDecode"
        return self.add(f"<<{head}/Length {len(data)}>>stream\n".encode() + data + b"\nendstream")

    def file(self, root: int) -> bytes:
        out, places = bytearray(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"), []
        for number, content in enumerate(self._objects, 1):
            places.append(len(out))
            out += f"{number} 0 obj\n".encode() + content + b"\nendobj\n"
        begin = len(out)
        out += f"xref\n0 {len(places) + 1}\n0000000000 65535 f \n".encode()
        out += b"".join(f"{place:010} 00000 n \n".encode() for place in places)
        out += f"trailer<</Size {len(places) + 1}/Root {root} 0 R>>\nstartxref\n{begin}\n%%EOF\n".encode()
        return bytes(out)


def written(sheets: Sequence[Sheet]) -> bytes:
    objects = _Objects()
    fonts = _Fonts(word.text for sheet in sheets for word in sheet.words)
    # with its own place: PDFium takes text for flat without one
    nothing = objects.stream(f"{_ADVANCE} 0 {_BOX} d1".encode())
    numbers = [_font(objects, part, nothing) for part in fonts.parts()]
    named = "".join(f"/F{place} {number} 0 R" for place, number in enumerate(numbers))
    pages = objects.add()
    kids = [_page(objects, sheet, fonts, f"/Font<<{named}>>", pages) for sheet in sheets]
    listed = " ".join(f"{kid} 0 R" for kid in kids)
    objects.set(pages, f"<</Type/Pages/Count {len(kids)}/Kids[{listed}]>>".encode())
    return objects.file(objects.add(f"<</Type/Catalog/Pages {pages} 0 R>>".encode()))


def _font(objects: _Objects, part: Sequence[str], nothing: int) -> int:
    meanings = objects.stream(_meanings(part).encode())
    return objects.add(
        f"<</Type/Font/Subtype/Type3/FontBBox[{_BOX}]"
        f"/FontMatrix[.001 0 0 .001 0 0]/CharProcs<</n {nothing} 0 R>>/Resources<<>>/FirstChar 1/LastChar {len(part)}"
        f"/Encoding<</Type/Encoding/Differences[1{'/n' * len(part)}]>>/Widths[{f'{_ADVANCE} ' * len(part)}]"
        f"/ToUnicode {meanings} 0 R>>".encode()
    )


def _meanings(part: Sequence[str]) -> str:
    names = [f"<{code:02x}><{letter.encode('utf-16-be').hex()}>" for code, letter in enumerate(part, 1)]
    blocks = [names[begin : begin + _MOST_NAMED] for begin in range(0, len(names), _MOST_NAMED)]
    tables = "\n".join(f"{len(block)} beginbfchar\n" + "\n".join(block) + "\nendbfchar" for block in blocks)
    return (
        "/CIDInit/ProcSet findresource begin 12 dict begin begincmap/CMapName/Words def/CMapType 2 def\n"
        f"1 begincodespacerange<00><ff>endcodespacerange\n{tables}\n"
        "endcmap CMapName currentdict/CMap defineresource pop end end"
    )


def _page(objects: _Objects, sheet: Sheet, fonts: _Fonts, resources: str, parent: int) -> int:
    content = ""
    left, bottom, right, top = sheet.box
    if picture := sheet.picture:
        head = f"/Type/XObject/Subtype/Image/Width {picture.width}/Height {picture.height}{picture.coding}"
        shown = objects.stream(picture.data, head, packed=True)
        resources += f"/XObject<</P {shown} 0 R>>"
        content = f"q {right - left:.4f} 0 0 {top - bottom:.4f} {left:.4f} {bottom:.4f} cm/P Do Q\n"
    content += "BT 3 Tr\n" + "\n".join(drawn for word in sheet.words if (drawn := _drawn(word, fonts))) + "\nET"
    box = " ".join(f"{end:.4f}" for end in sheet.box)
    return objects.add(
        f"<</Type/Page/Parent {parent} 0 R/MediaBox[{box}]/Resources<<{resources}>>"
        f"/Contents {objects.stream(content.encode())} 0 R>>".encode()
    )


def _drawn(word: PlacedWord, fonts: _Fonts) -> str:
    upper_left, _, lower_right, lower_left = word.corners
    along, upwards = lower_right - lower_left, upper_left - lower_left
    length, height = float(np.hypot(*along)), float(np.hypot(*upwards))
    if not word.text or length <= 0 or height <= 0:
        return ""
    x, y = lower_left + _DESCENT * upwards
    cosine, sine = along / length
    stretch = 100 * length / (len(word.text) * height * _ADVANCE / 1000)
    # with a space: words that stand close to one another stay two
    shown = " ".join(f"/F{part} {height:.4f} Tf <{codes.hex()}> Tj" for part, codes in fonts.coded(f"{word.text} "))
    return f"{stretch:.4f} Tz {cosine:.6f} {sine:.6f} {-sine:.6f} {cosine:.6f} {x:.4f} {y:.4f} Tm {shown}"
