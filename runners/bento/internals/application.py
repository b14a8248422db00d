"""The application that BentoML makes of a service in a worker, to build another one on"""

from __future__ import annotations

from abc import abstractmethod
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from _bentoml_impl.server.app import ServiceAppFactory
from bentoml._internal.configuration.containers import BentoMLContainer
from bentoml._internal.server.http.access import AccessLogMiddleware
from bentoml._internal.server.http.instruments import RunnerTrafficMetricsMiddleware
from bentoml._internal.server.http.traffic import TimeoutMiddleware
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware

if TYPE_CHECKING:
    import bentoml
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["Layer", "WorkerApplication", "excludes_paths_from_traces", "exports_traces"]


class Layer(Enum):
    """What BentoML puts around the endpoints, and another one may take the place of"""

    METRICS = auto()
    TRACING = auto()
    ACCESS_LOG = auto()
    TIMEOUT = auto()


_LAYERS: Final = {
    RunnerTrafficMetricsMiddleware: Layer.METRICS,
    OpenTelemetryMiddleware: Layer.TRACING,
    AccessLogMiddleware: Layer.ACCESS_LOG,
    TimeoutMiddleware: Layer.TIMEOUT,
}


class WorkerApplication(ServiceAppFactory):
    """Makes it. Routes call `api_endpoint`, `readyz`, `metrics`, `index_page`, `openapi_spec_view`, `schema_view`"""

    def __init__(self, service: bentoml.Service[Any], *, is_main: bool) -> None:
        super().__init__(service, is_main=is_main)
        self._format_of_ids: dict[str, str] = BentoMLContainer.logging_formatting.get()

    @abstractmethod
    def in_its_place(self, layer: Layer, given: Middleware) -> Middleware:
        """What stands where BentoML's layer stood, or that one"""

    @property
    def middlewares(self) -> list[Middleware]:
        layers = [(_LAYERS.get(given.cls), given) for given in super().middlewares]
        return [given if layer is None else self.in_its_place(layer, given) for layer, given in layers]

    async def create_instance(self, app: Starlette) -> None:
        await super().create_instance(app)
        # BentoML asks for these with each request, and would make them anew: with a signature, which is dear.
        for name in self.service.apis:
            setattr(self.instance, name, getattr(self.instance, name))

    @property
    def instance(self) -> Any:  # noqa: ANN401 - of the service's class
        """That of this worker, once it has started"""
        return self._service_instance

    async def text_of_the_page(self, request: Request) -> str:
        """The HTML of BentoML's page about a service"""
        made = await super().index_page(request)
        return Path(made.path).read_text(encoding="utf-8")

    def _add_response_headers(self, resp: Response) -> None:
        # The format of ids is looked up once, not injected into each call.
        super()._add_response_headers.__wrapped__(self, resp, self._format_of_ids)


def exports_traces() -> bool:
    """Whether BentoML's configuration says where they go"""
    return BentoMLContainer.tracing.exporter_type.get() is not None


def excludes_paths_from_traces() -> bool:
    """Whether BentoML's configuration names some"""
    return BentoMLContainer.tracing.excluded_urls.get() is not None
