"""BentoML's application of a service, with what its middleware and its health routes would get wrong put right"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _bentoml_impl.server.app import ServiceAppFactory
from bentoml._internal.configuration.containers import BentoMLContainer
from bentoml._internal.server.http.access import AccessLogMiddleware
from bentoml._internal.server.http.traffic import TimeoutMiddleware
from bentoml._internal.utils.uri import join_paths
from bentoml.exceptions import BentoMLException
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, JSONResponse

from ...errors import KushiError
from ..dependency import EngineDependency
from ..told import told
from .access_log import AccessLog
from .answers import in_one_piece, remember_content_types
from .openapi import document, page
from .timeout import Timeout
from .tracing import Tracing
from .uploads import check_uploads

if TYPE_CHECKING:
    from _bentoml_sdk.service import Service
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["ApplicationFactory"]

_READY_SECONDS = 0.75
# BentoML says that much and no more.
_UNTOLD = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class ApplicationFactory(ServiceAppFactory):
    """Makes the application of one worker"""

    def __init__(self, service: Service[Any], *, is_main: bool) -> None:
        super().__init__(service, is_main=is_main)
        self._logging_format: dict[str, str] = BentoMLContainer.logging_formatting.get()
        remember_content_types(method.output_spec for method in service.apis.values())

    @property
    def middlewares(self) -> list[Middleware]:
        return [self._replaced(middleware) for middleware in super().middlewares]

    def _replaced(self, middleware: Middleware) -> Middleware:
        made: Any = middleware.cls
        options: dict[str, Any] = middleware.kwargs
        tracing = BentoMLContainer.tracing
        if made is TimeoutMiddleware:
            made, options = Timeout, {**options, "watched": self._awaited_paths()}
        elif made is AccessLogMiddleware:
            made = AccessLog
        elif made is OpenTelemetryMiddleware and tracing.exporter_type.get() is None:
            made, options = Tracing, {**options, "has_exclusions": tracing.excluded_urls.get() is not None}
        return Middleware(made, **options)

    def _awaited_paths(self) -> list[str]:
        """Those of the endpoints that nothing holds when they are cancelled: no thread, no batch with other requests"""
        return [
            join_paths(self.service.path_prefix, method.route)
            for method in self.service.apis.values()
            if not method.batchable
            and (inspect.iscoroutinefunction(method.func) or inspect.isasyncgenfunction(method.func))
        ]

    async def create_instance(self, app: Starlette) -> None:
        await super().create_instance(app)
        # BentoML asks for these with each request, and would make them anew: with a signature, which is dear.
        for name in self.service.apis:
            setattr(self._service_instance, name, getattr(self._service_instance, name))

    def _add_response_headers(self, resp: Response) -> None:
        # The format of ids is looked up once, not injected into each call.
        super()._add_response_headers.__wrapped__(self, resp, self._logging_format)

    async def api_endpoint(self, name: str, request: Request) -> Response:
        expected = self.service.apis[name].input_spec
        try:
            await check_uploads(request, expected)
            return in_one_piece(await super().api_endpoint(name, request))
        except KushiError as error:
            headers = {"retry-after": "1"} if error.retryable else None
            return JSONResponse({"error": told(error)}, status_code=error.status, headers=headers)
        except HTTPException as error:
            return JSONResponse({"error": error.detail}, status_code=error.status_code)
        except ValidationError as error:
            # One of the endpoint's own making is for the log; those of clients would fill it.
            if error.title != expected.__name__:
                raise
            return JSONResponse(_not_as_declared(error), status_code=400)
        except BentoMLException as error:
            if error.error_code >= HTTPStatus.INTERNAL_SERVER_ERROR or error.error_code in _UNTOLD:
                raise
            return JSONResponse({"error": str(error)}, status_code=error.error_code)

    async def readyz(self, request: Request) -> Response:
        ready = await asyncio.gather(*map(_is_ready, self._engines()))
        if not all(ready):
            raise HTTPException(503, "the engine is not there, or a model of it does not serve")
        return await super().readyz(request)

    async def index_page(self, request: Request) -> Response:
        made = await super().index_page(request)
        return HTMLResponse(page(Path(made.path).read_text(), self.service.name))

    async def openapi_spec_view(self, _: Request) -> Response:
        return JSONResponse(document(self.service))

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
        return [getattr(self._service_instance, name) for name in names]


def _not_as_declared(error: ValidationError) -> dict[str, Any]:
    detail = error.errors(include_url=False, include_context=False, include_input=False)
    said = ("".join(f"'{'.'.join(map(str, found['loc']))}': " * bool(found["loc"])) + found["msg"] for found in detail)
    return {"error": f"the input is not as declared: {'; '.join(said)}", "detail": detail}


async def _is_ready(engine: Any) -> bool:  # noqa: ANN401 - a Client or an Engine
    try:
        return bool(await engine.async_is_server_ready(deadline=_READY_SECONDS))
    except KushiError:
        return False
