"""BentoML's application of a service, with what its middleware and its health routes would get wrong put right"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from bentoml.exceptions import BentoMLException
from kushi_native import carry_traces
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, JSONResponse, Response

from ...errors import KushiError
from ..dependency import EngineDependency
from ..error_text import error_text
from ..internals.application import Layer, WorkerApplication, excludes_paths_from_traces, exports_traces
from ..internals.endpoints import endpoints, remember_content_type
from .access_log import AccessLog
from .answers import break_off_failed_streams, in_one_piece
from .metrics import Metrics
from .openapi import document, page
from .refusal import refusal
from .timeout import CLIENT_GONE, Timeout
from .tracing import Tracing, carried
from .uploads import check_uploads

if TYPE_CHECKING:
    import bentoml
    from starlette.applications import Starlette
    from starlette.requests import Request

__all__ = ["ApplicationFactory"]

_READY_SECONDS = 0.75
_MOST_PATH_CHARACTERS = 200
# BentoML says that much and no more.
_FORM: Final = "application/x-www-form-urlencoded"
_UNTOLD = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class ApplicationFactory(WorkerApplication):
    """Makes the application of one worker"""

    def __init__(self, service: bentoml.Service[Any], *, is_main: bool) -> None:
        super().__init__(service, is_main=is_main)
        carry_traces(carried)
        # The same for whoever asks, and dear to make.
        self._page: str | None = None
        self._document: bytes | memoryview | None = None
        self._schema: bytes | memoryview | None = None
        self._endpoints = endpoints(service)
        for endpoint in self._endpoints.values():
            remember_content_type(endpoint.answered)
            break_off_failed_streams(endpoint.answered)

    def __call__(self) -> Starlette:
        application = super().__call__()
        application.add_exception_handler(HTTPException, _not_served)
        # at / as well, unless the engine has a page there
        application.add_route(f"{(self.service.path_prefix or '').rstrip('/')}/docs", self.index_page, name="docs")
        return application

    def in_its_place(self, layer: Layer, given: Middleware) -> Middleware:
        made: Any = given.cls
        options: dict[str, Any] = given.kwargs
        match layer:
            case Layer.TIMEOUT:
                made, options = Timeout, {**options, "watched": self._awaited_paths()}
            case Layer.ACCESS_LOG:
                made = AccessLog
            case Layer.METRICS:
                made, options = Metrics, {**options, "counting": made}
            case Layer.TRACING if not exports_traces():
                made, options = Tracing, {**options, "has_exclusions": excludes_paths_from_traces()}
        return Middleware(made, **options)

    def _awaited_paths(self) -> list[str]:
        """Those of the endpoints that nothing holds when they are cancelled: no thread, no batch with other requests"""
        return [
            endpoint.path
            for endpoint in self._endpoints.values()
            if not endpoint.is_batched
            and (inspect.iscoroutinefunction(endpoint.function) or inspect.isasyncgenfunction(endpoint.function))
        ]

    async def api_endpoint(self, name: str, request: Request) -> Response:
        expected = self._endpoints[name].expected
        try:
            await check_uploads(request, expected)
            return in_one_piece(await super().api_endpoint(name, request))
        except KushiError as error:
            headers = {"retry-after": "1"} if error.retryable else {}
            return refusal(error.status, error_text(error), headers)
        except ClientDisconnect:
            # Nobody receives it: it is for the access log and the metrics, and BentoML would log the whole stack.
            return Response(status_code=CLIENT_GONE)
        except HTTPException as error:
            return refusal(error.status_code, error.detail, error.headers)
        except ValidationError as error:
            # One of the endpoint's own making is for the log; those of clients would fill it.
            if error.title != expected.__name__:
                raise
            return JSONResponse(_not_as_declared(error, request), status_code=400)
        except BentoMLException as error:
            if error.error_code >= HTTPStatus.INTERNAL_SERVER_ERROR or error.error_code in _UNTOLD:
                raise
            return refusal(error.error_code, str(error))

    async def readyz(self, request: Request) -> Response:
        ready = await asyncio.gather(*map(_is_ready, self._engines()))
        if not all(ready):
            raise HTTPException(503, "the engine is not there, or a model of it does not serve")
        return await super().readyz(request)

    async def index_page(self, request: Request) -> Response:
        if self._page is None:
            self._page = page(await self.text_of_the_page(request), self.service.name)
        return HTMLResponse(self._page)

    async def openapi_spec_view(self, _: Request) -> Response:
        if self._document is None:
            self._document = JSONResponse(document(self.service)).body
        return Response(self._document, media_type="application/json")

    async def schema_view(self, _: Request) -> Response:
        if self._schema is None:
            self._schema = JSONResponse(self.service.schema()).body
        return Response(self._schema, media_type="application/json")

    async def metrics(self, request: Request) -> Response:
        """BentoML's and the engine's, one below the other"""
        response = await super().metrics(request)
        for engine in self._engines():
            with contextlib.suppress(KushiError):
                response.body += (await engine.async_get_metrics(deadline=_READY_SECONDS)).encode()
        response.headers["content-length"] = str(len(response.body))
        return response

    def _engines(self) -> list[Any]:
        dependencies = self.service.dependencies
        names = [name for name, found in dependencies.items() if isinstance(found, EngineDependency)]
        return [getattr(self.instance, name) for name in names]


def _not_as_declared(error: ValidationError, request: Request) -> dict[str, Any]:
    detail = error.errors(include_url=False, include_context=False, include_input=False)
    said = ("".join(f"'{'.'.join(map(str, found['loc']))}': " * bool(found["loc"])) + found["msg"] for found in detail)
    text = f"the input is not as declared: {'; '.join(said)}"
    if request.headers.get("content-type") == _FORM:
        # as curl says of any data, unless it is told otherwise
        text += f"; the body was read as {_FORM}, JSON needs 'Content-Type: application/json'"
    return {"error": text, "detail": detail}


def _not_served(request: Request, error: Exception) -> Response:
    """What no endpoint has answered: a path or a method that no route has, a worker that is not ready"""
    assert isinstance(error, HTTPException)  # noqa: S101 - it is the handler of these
    # the URL would be put together from a head that may be any
    path = request.scope["path"][:_MOST_PATH_CHARACTERS]
    text = error.detail
    match error.status_code:
        case HTTPStatus.NOT_FOUND if text == HTTPStatus.NOT_FOUND.phrase:
            text = f"there is no '{path}' here, /docs.json lists what there is"
        case HTTPStatus.METHOD_NOT_ALLOWED:
            allowed = (error.headers or {}).get("Allow", "another method")
            text = f"'{path}' does not take {request.method}, but {allowed}"
    return refusal(error.status_code, text, error.headers)


async def _is_ready(engine: Any) -> bool:  # noqa: ANN401 - a Client or an Engine
    try:
        return bool(await engine.async_is_server_ready(deadline=_READY_SECONDS))
    except KushiError:
        return False
