"""
What BentoML would do with an upload that is no file: where a text stands in its place, it fetches what the text names.
Nothing is fetched here for a client. And it names a file after the upload, however long that name is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from _bentoml_sdk.io_models import IORootModel
from starlette.datastructures import UploadFile

from ...errors import InvalidInput

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["check_uploads"]

_FORMS = ("multipart/form-data", "application/x-www-form-urlencoded")
# BentoML leaves out what is no text before it looks, and what follows takes a URL apart leaves out more.
_LEFT_OUT = rb"[^!#-&(-~]*"
_LINK = re.compile(_LEFT_OUT.join((b"", b"h", b"t", b"t", b"p", b"s?", b":")), re.IGNORECASE)
# of which none has more than four bytes, where the system takes 255
_MOST_NAME_CHARACTERS = 32


async def check_uploads(request: Request, expected: type[Any]) -> None:
    """Raises where a file is expected and a text came"""
    fields: list[str] = expected.multipart_fields
    if not fields:
        return
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind in _FORMS:
        form = await request.form()
        for field in fields:
            for part in form.getlist(field):
                if not isinstance(part, UploadFile):
                    raise InvalidInput(
                        f"'{field}' is text, expected a file: upload the file itself, links are not followed"
                    )
                part.filename = (part.filename or "")[-_MOST_NAME_CHARACTERS:]
    elif issubclass(expected, IORootModel) and _LINK.match(await request.body()):
        raise InvalidInput("the body is a link, expected a file: upload the file itself, links are not followed")
