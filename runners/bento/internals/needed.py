"""
What a BentoML must have for us to stand on it. It is looked at once, when the package around this one is imported: one
that lacks something ends the start with a text that says so, and not a request with an AttributeError.
"""

from __future__ import annotations

import inspect
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LOOKED_UP", "NAMES", "SUPPORTED", "check"]

SUPPORTED: Final = ">=1.4.39,<1.4.41"
"""The extra `bento` of pyproject.toml says the same"""

NAMES: Final = {
    # public, as far as their names say
    "bentoml": (
        *("Bento.info", "Bento.tag", "Dependency.close", "Dependency.get", "Dependency.on", "Dependency.url"),
        *("Service.__call__", "Service.apis", "Service.bento", "Service.config", "Service.dependencies"),
        *("Service.inject_config", "Service.inner", "Service.models", "Service.name", "Service.openapi_spec"),
        *("Service.path_prefix", "Service.schema", "Service.to_asgi", "Service.url"),
        *("api", "on_deployment", "on_shutdown", "on_startup", "service", "use_arguments"),
    ),
    "bentoml.exceptions": ("BentoMLException.error_code",),
    "bentoml.images": (
        *("Image.build_include", "Image.freeze", "Image.lock_python_packages", "Image.python_packages", "Image.run"),
    ),
    "bentoml.models": ("BentoModel.resolve", "HuggingFaceModel.resolve"),
    # its application of a worker
    "_bentoml_impl.server.app": (
        *("ServiceAppFactory._add_response_headers.__wrapped__", "ServiceAppFactory.api_endpoint"),
        *("ServiceAppFactory.create_instance", "ServiceAppFactory.index_page", "ServiceAppFactory.metrics"),
        *("ServiceAppFactory.middlewares", "ServiceAppFactory.openapi_spec_view", "ServiceAppFactory.readyz"),
        "ServiceAppFactory.schema_view",
    ),
    "bentoml._internal.bento.bento": ("get_default_svc_readme",),
    "bentoml._internal.configuration.containers": (
        *("BentoMLContainer.logging_formatting", "BentoMLContainer.tracing.excluded_urls"),
        "BentoMLContainer.tracing.exporter_type",
    ),
    "bentoml._internal.server.http.access": ("AccessLogMiddleware",),
    "bentoml._internal.server.http.instruments": ("RunnerTrafficMetricsMiddleware",),
    "bentoml._internal.server.http.traffic": ("TimeoutMiddleware",),
    # what its endpoints take and answer
    "_bentoml_impl.serde": ("ALL_SERDE", "MultipartSerde.parse_request", "Serde.parse_request"),
    "_bentoml_sdk.io_models": (
        *("IODescriptor.mime_type", "IODescriptor.multipart_fields", "IODescriptor.to_http_response"),
        *("IORootModel", "IterableResponse"),
    ),
    "_bentoml_sdk.method": (
        *("APIMethod.batchable", "APIMethod.func", "APIMethod.input_spec", "APIMethod.output_spec", "APIMethod.route"),
    ),
    "_bentoml_sdk.service.dependency": ("Dependency.__attrs_post_init__", "Dependency._resolved"),
    # its supervisor
    "bentoml._internal.utils.circus": ("Arbiter.stop", "ThreadedArbiter.stop"),
    "bentoml.serving": ("running_inside_container",),
    "circus.arbiter": ("Arbiter.manage_watchers", "Arbiter.stop"),
    "circus.process": ("DEAD_OR_ZOMBIE", "Process.pid", "Process.status", "UNEXISTING"),
}
"""By module. A dotted name is looked at step by step"""

LOOKED_UP: Final = {
    "_bentoml_impl.server.app:ServiceAppFactory.api_endpoint": ("ALL_SERDE", "input_spec", "output_spec"),
    "_bentoml_impl.server.app:ServiceAppFactory.create_instance": ("_service_instance",),
    "_bentoml_impl.server.app:ServiceAppFactory.middlewares": (
        *("AccessLogMiddleware", "OpenTelemetryMiddleware", "RunnerTrafficMetricsMiddleware"),
    ),
    "_bentoml_impl.worker.service:main.callback": ("Server", "remote_runner_mapping", "to_asgi"),
    "bentoml._internal.server.base_app:BaseAppFactory.middlewares": ("TimeoutMiddleware",),
    "bentoml._internal.utils.circus:create_standalone_arbiter": ("Arbiter", "ThreadedArbiter"),
    "bentoml.serving:create_watcher": ("running_inside_container",),
    "circus.arbiter:Arbiter.__init__": ("_exclusive_running_command", "check_delay", "loop", "sockets", "watchers"),
    "circus.watcher:Watcher.__init__": ("numprocesses", "processes"),
}
"""By function, what it looks up by name, or sets: where it does not, what we put in that place would never be asked"""


def check() -> None:
    """Raises where the installed BentoML is not one that this was written for, and says what it lacks"""
    missing = sorted({*_missing_names(), *_missing_lookups()})
    if not missing:
        return
    try:
        found = f"bentoml {metadata.version('bentoml')} found, expected {SUPPORTED}: it lacks {', '.join(missing)}"
    except metadata.PackageNotFoundError:
        found = f"bentoml is not installed, expected {SUPPORTED}"
    raise ImportError(f"{found}: pip install 'kushi[bento]'")


def _missing_names() -> Iterator[str]:
    for module, wanted in NAMES.items():
        for name in wanted:
            try:
                _found(module, name)
            except ImportError as error:
                yield str(error)
            except AttributeError:
                yield f"{module}.{name}"


def _missing_lookups() -> Iterator[str]:
    for where, wanted in LOOKED_UP.items():
        module, _, name = where.partition(":")
        try:
            found = _found(module, name)
            code = inspect.unwrap(getattr(found, "fget", found)).__code__
        except ImportError as error:
            yield str(error)
        except AttributeError:
            yield f"{module}.{name}"
        else:
            yield from (f"'{one}' in {module}.{name}" for one in wanted if one not in code.co_names)


def _found(module: str, name: str) -> Any:  # noqa: ANN401 - whatever goes by that name
    found: Any = import_module(module)
    for step in name.split("."):
        found = getattr(found, step)
    return found
