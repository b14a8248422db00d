"""The endpoints of a service: what each of them takes and answers, and how its answers are made"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from _bentoml_sdk.io_models import IORootModel, IterableResponse
from bentoml._internal.bento.bento import get_default_svc_readme

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    import bentoml
    from starlette.responses import Response

__all__ = [
    "Endpoint",
    "MakeResponse",
    "default_description",
    "endpoints",
    "fields_of_files",
    "is_whole_body",
    "make_responses_with",
    "pieces_of",
    "remember_content_type",
]

MakeResponse: TypeAlias = "Callable[[Any, Any], Awaitable[Response]]"
"""Of what an endpoint has answered, and a serializer"""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One of them"""

    path: str
    function: Callable[..., Any]
    is_batched: bool
    """BentoML runs several requests in one call"""
    expected: type[Any]
    """What it takes, as a class of pydantic"""
    answered: type[Any]
    """The same of what it answers"""


def endpoints(service: bentoml.Service[Any]) -> dict[str, Endpoint]:
    """By the names of their methods"""
    prefix = f"/{(service.path_prefix or '').strip('/')}".rstrip("/")
    return {
        name: Endpoint(f"{prefix}{made.route}", made.func, made.batchable, made.input_spec, made.output_spec)
        for name, made in service.apis.items()
    }


def fields_of_files(expected: type[Any]) -> list[str]:
    """Where an endpoint takes files"""
    fields: list[str] = expected.multipart_fields
    return fields


def is_whole_body(expected: type[Any]) -> bool:
    """Whether the body of a request is the one thing that an endpoint takes, and no form or object around it"""
    return issubclass(expected, IORootModel)


def remember_content_type(answered: type[Any]) -> None:
    """That of an answer which is no object BentoML reads from a JSON schema, built anew each time"""
    answered.mime_type = staticmethod(cache(answered.mime_type))


def make_responses_with(answered: type[Any], around: Callable[[MakeResponse], MakeResponse]) -> None:
    """From now on `around` stands around what BentoML makes an endpoint's responses with"""
    answered.to_http_response = staticmethod(around(answered.to_http_response))


def pieces_of(response: Response) -> Iterable[bytes] | None:
    """Those of a response that is there as a whole, and would be sent like a stream; None of any other"""
    if not isinstance(response, IterableResponse):
        return None
    pieces: Iterable[bytes] = response.body_iterator
    return pieces


def default_description(service: bentoml.Service[Any]) -> str:
    """What BentoML says of a service that says nothing of itself"""
    text: str = get_default_svc_readme(service)
    return text
