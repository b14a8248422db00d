"""What the application answers in truth, in the document that BentoML makes of the endpoints, and the page for it"""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any, Final

from ..internals.endpoints import default_description

if TYPE_CHECKING:
    import bentoml

__all__ = ["document", "page"]

_TRACKER: Final = re.compile("<!-- Google Tag Manager.*?<!-- End Google Tag Manager.*?-->", re.DOTALL)

_ERRORS: Final = {
    "400": "The request cannot be right, whatever the state of the service",
    "413": "The body is larger than what is accepted",
    "415": "The content type is one that is never accepted: pickle",
    "500": "The service or a model failed",
    "503": "The engine is away, or its queue is full; with `Retry-After` where another try may succeed",
    "504": "The answer took longer than the service allows",
}
_SCHEMA: Final = {
    "title": "Error",
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {"type": "string", "description": "What was expected and what came"},
        "detail": {"type": "array", "items": {"type": "object"}, "description": "Where the input is not as declared"},
    },
}
_RESPONSES: Final = {
    status: {
        "description": text,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    for status, text in _ERRORS.items()
}


def document(service: bentoml.Service[Any]) -> dict[str, Any]:
    """The OpenAPI document of the service, which begins with what the class says of itself"""
    made: dict[str, Any] = service.openapi_spec.asdict()
    about = made["info"]
    said = inspect.getdoc(service.inner)
    if said:
        # The page has no other title.
        said = f"# {service.name}\n\n{said}"
        # What stands there by default is about BentoML.
        is_own = about["description"] != default_description(service)
        about["description"] = f"{said}\n\n{about['description']}" if is_own else said
    about["version"] = service.bento.tag.version if service.bento else "dev"
    del about["contact"]
    made["components"].setdefault("schemas", {})["Error"] = _SCHEMA
    for path in made["paths"].values():
        operation = path.get("post", {})
        if "x-bentoml-name" in operation:
            answers = {str(int(status)): answer for status, answer in operation["responses"].items()}
            operation["responses"] = {"200": answers["200"], **_RESPONSES}
    return made


def page(html: str, name: str) -> str:
    """BentoML's page without what tells others who looks at it"""
    return _TRACKER.sub("", html).replace("BentoML Prediction Service", name)
