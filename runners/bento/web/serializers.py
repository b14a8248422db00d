"""
What stands in BentoML's registry of serializers instead of two of its own.

BentoML's services ask each other with pickle, which runs what it reads. Here nobody does: what stands in its place
refuses, whatever way a request or an answer has found to it.

And a field of a form that is nested too deeply for JSON, is too long a number, or is a file that nobody declared, is
the client's fault: for BentoML it is one of the service, with a stack in the log.
"""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NoReturn

from bentoml.exceptions import BentoMLException
from pydantic import ValidationError

from ...errors import InvalidInput
from ..internals.serializers import FormSerializer, Serializer, use_serializers

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["FORMS", "REFUSAL", "is_pickle", "replace_serializers"]

REFUSAL: Final = "pickle is not accepted: send JSON, multipart/form-data or the body itself"
_KIND: Final = "application/vnd.bentoml+pickle"
FORMS: Final = ("multipart/form-data", "application/x-www-form-urlencoded")


class _Refused(Serializer):
    media_type = _KIND

    def serialize_model(self, *_: Any) -> NoReturn:  # noqa: ANN401 - whatever it is
        raise BentoMLException(REFUSAL, error_code=HTTPStatus.UNSUPPORTED_MEDIA_TYPE)

    deserialize_model = serialize = deserialize = parse_request = serialize_model


class _Forms(FormSerializer):
    async def parse_request(self, request: Request, cls: type[Any]) -> Any:  # noqa: ANN401 - what the endpoint takes
        try:
            return await super().parse_request(request, cls)
        except ValidationError:
            raise
        except UnicodeDecodeError:
            raise InvalidInput(
                "a field of the form holds bytes that are no text, and the endpoint declares no file of that name"
            ) from None
        except (RecursionError, ValueError):
            raise InvalidInput(
                "a field of the form is JSON that is nested too deeply, or has too long a number"
            ) from None


def replace_serializers() -> None:
    """In this process, from now on"""
    use_serializers({_KIND: _Refused, **dict.fromkeys(FORMS, _Forms)})
    # It has a line of the log for every malformed form, which is answered with 400.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)


def is_pickle(content_type: bytes) -> bool:
    """Whether a client says so, which is answered before anything is read"""
    return content_type.decode("latin-1").strip().lower().startswith(_KIND)
