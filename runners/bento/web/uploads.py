"""
What BentoML would do with an upload that is no file: where a text stands in its place, it fetches what the text names.
Nothing is fetched here for a client. And it names a file after the upload, however long that name is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile

from ...errors import InvalidInput
from ..internals.endpoints import fields_of_files, is_whole_body
from .serializers import FORMS

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["check_uploads"]

# BentoML leaves out what is no text before it looks, and what follows takes a URL apart leaves out more.
_LEFT_OUT = rb"[^!#-&(-~]*"
_LINK = re.compile(_LEFT_OUT.join((b"", b"h", b"t", b"t", b"p", b"s?", b":")), re.IGNORECASE)
# Others that Python knows take minutes for a text that is made for it, or are none of texts at all.
_CHARSETS = frozenset(("utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "latin-1", "latin1", "windows-1252"))
# of which none has more than four bytes, where the system takes 255
_MOST_NAME_CHARACTERS = 32
_MOST_NAMES = 8


async def check_uploads(request: Request, expected: type[Any]) -> None:
    """Raises where a file is expected and something else came, and where a form is written in no usual characters"""
    _check_charset(request.headers.get("content-type", ""))
    fields = fields_of_files(expected)
    if not fields:
        return
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind in FORMS:
        form = await request.form()
        if not is_whole_body(expected):
            _check_names(kind, [*form], fields, expected)
        for field in fields:
            for part in form.getlist(field):
                if not isinstance(part, UploadFile):
                    raise InvalidInput(
                        f"'{field}' is text, expected a file: upload the file itself, links are not followed"
                    )
                part.filename = (part.filename or "")[-_MOST_NAME_CHARACTERS:]
    elif is_whole_body(expected) and _LINK.match(await request.body()):
        raise InvalidInput("the body is a link, expected a file: upload the file itself, links are not followed")
    elif not is_whole_body(expected) and kind and "json" not in kind and (files := _required(fields, expected)):
        # a client looks for an answer once it has sent everything
        await request.body()
        raise InvalidInput(f"the body is {kind[:_MOST_NAME_CHARACTERS]}, expected {FORMS[0]} with the {_files(files)}")


def _check_names(kind: str, given: list[str], fields: list[str], expected: type[Any]) -> None:
    """Raises where a file is missing, which may be there by another name"""
    missing = [field for field in _required(fields, expected) if field not in given]
    others = [name for name in given if name not in expected.model_fields]
    if missing and others:
        has = f"it has {_names(others)}" if kind == FORMS[0] else f"and {kind} has no files: send {FORMS[0]}"
        raise InvalidInput(f"the form has no {_files(missing)}, {has}")


def _required(fields: list[str], expected: type[Any]) -> list[str]:
    return [field for field in fields if expected.model_fields[field].is_required()]


def _files(fields: list[str]) -> str:
    return f"{'files' if len(fields) > 1 else 'file'} {_names(fields)}"


def _names(names: list[str]) -> str:
    shown = ", ".join(repr(name[:_MOST_NAME_CHARACTERS]) for name in names[:_MOST_NAMES])
    return f"{shown}, …" if len(names) > _MOST_NAMES else shown


def _check_charset(content_type: str) -> None:
    kind, parameters = parse_options_header(content_type)
    charset = parameters.get(b"charset", b"utf-8").decode("latin-1")
    if kind.decode("latin-1") in FORMS and charset.lower() not in _CHARSETS:
        raise InvalidInput(f"a form in the charset '{charset[:_MOST_NAME_CHARACTERS]}' is not read: send it in utf-8")
