"""Compressed bodies."""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING, Final

from tests.contract.cases.case import PARSE, Case, Code, Http, document
from tests.contract.requests import HEADER_LENGTH, path

if TYPE_CHECKING:
    from tests.raw_http import Headers


def coded(body: bytes, coding: str, headers: Headers = (), place: str = "add_sub") -> Http:
    return Http(body, [*headers, ("Content-Encoding", coding)], path(place))


BROKEN: Final = "failed to decompress the request body:"
CODED: Final = document().body
GZIP: Final = gzip.compress(CODED, mtime=0)
ZLIB: Final = zlib.compress(CODED)

UNDECODED_CASES: Final = [
    *(
        Case(
            f"a body that is compressed with {coding}",
            coded(CODED, coding),
            Code.UNIMPLEMENTED,
            "Unsupported compression type",
        )
        for coding in ("br", "zstd", "compress", "gzip, gzip", "gzip;q=1", "*")
    ),
    *(
        Case(
            f"{name} that is said to be {coding}",
            coded(body, coding),
            Code.INVALID_ARGUMENT,
            text,
        )
        for coding in ("gzip", "deflate")
        for name, body, text in (
            ("no body", b"", "nothing to be decompressed"),
            ("a plain body", CODED, f"{BROKEN} corrupt deflate stream"),
            ("bare deflate", ZLIB[2:-4], f"{BROKEN} corrupt deflate stream"),
            ("zlib cut short", ZLIB[:-20], f"{BROKEN} incomplete deflate stream"),
            ("zlib without its checksum", ZLIB[:-4], f"{BROKEN} incomplete deflate stream"),
            ("zlib with another checksum", ZLIB[:-1] + bytes([ZLIB[-1] ^ 1]), f"{BROKEN} corrupt deflate stream"),
            ("gzip cut short", GZIP[:-20], f"{BROKEN} incomplete deflate stream"),
            ("gzip without its checksum", GZIP[:-8], f"{BROKEN} unexpected end of file"),
            ("the start of gzip", GZIP[:5], f"{BROKEN} unexpected end of file"),
            (
                "gzip with another checksum",
                GZIP[:-8] + bytes([GZIP[-8] ^ 1]) + GZIP[-7:],
                f"{BROKEN} corrupt gzip stream does not have a matching checksum",
            ),
        )
    ),
    Case(
        "compressed JSON that is none",
        coded(gzip.compress(b"{", mtime=0), "gzip"),
        Code.INTERNAL,
        f"{PARSE}Missing a name for object member. at 1",
    ),
    Case(
        "a compressed body of nothing",
        coded(gzip.compress(b"", mtime=0), "gzip"),
        Code.INVALID_ARGUMENT,
        "[request id: <id_unknown>] Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in "
        "'add_sub' model configuration",
    ),
    Case(
        "a header length beyond the body that was compressed",
        coded(GZIP, "gzip", [(HEADER_LENGTH, str(len(CODED) + 1))]),
        Code.INVALID_ARGUMENT,
        f"inference header size should be in range (0, {len(CODED)}), got: {len(CODED) + 1}",
    ),
    Case(
        "the model is looked up before the coding",
        coded(CODED, "br", place="missing"),
        Code.NOT_FOUND,
        "Request for unknown model: 'missing' is not found",
    ),
]
