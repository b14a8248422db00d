"""
What the environment says about the collector of spans, by the variables of OpenTelemetry.

They are for all programs of a host or a pod, so that one which cannot be read is no reason not to start: it is named in
the log and does not count, as their specification asks.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from .integers import INT32_MAX, integer

__all__ = ["Telemetry", "telemetry"]

_LOG = logging.getLogger(__name__)
_PREFIX = "OTEL_EXPORTER_OTLP_"


@dataclass(frozen=True)
class Telemetry:
    """What is said, None and nothing where it is not"""

    disabled: bool
    """Nothing is to be sent, whatever else is said"""
    url: str | None
    headers: Mapping[str, str]
    timeout_ms: int | None
    resource: Mapping[str, str]
    max_queue_size: int | None
    schedule_delay_ms: int | None
    max_export_batch_size: int | None


def telemetry(variables: Mapping[str, str]) -> Telemetry:
    """What these variables say; an empty one says nothing"""
    resource = _pairs(variables, "OTEL_RESOURCE_ATTRIBUTES")
    if name := variables.get("OTEL_SERVICE_NAME"):
        resource["service.name"] = name
    _check_protocol(variables)
    return Telemetry(
        disabled=(
            variables.get("OTEL_SDK_DISABLED", "").lower() == "true"
            or variables.get("OTEL_TRACES_EXPORTER", "").lower() == "none"
        ),
        url=_url(variables),
        headers=_pairs(variables, _of_traces(variables, "HEADERS")),
        timeout_ms=_number(variables, _of_traces(variables, "TIMEOUT")),
        resource=resource,
        max_queue_size=_number(variables, "OTEL_BSP_MAX_QUEUE_SIZE"),
        schedule_delay_ms=_number(variables, "OTEL_BSP_SCHEDULE_DELAY"),
        max_export_batch_size=_number(variables, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"),
    )


def _of_traces(variables: Mapping[str, str], name: str) -> str:
    """The variable of traces alone where it is there, else that of all signals"""
    own = f"{_PREFIX}TRACES_{name}"
    return own if variables.get(own) else f"{_PREFIX}{name}"


def _url(variables: Mapping[str, str]) -> str | None:
    if own := variables.get(f"{_PREFIX}TRACES_ENDPOINT"):
        return own
    if base := variables.get(f"{_PREFIX}ENDPOINT"):
        return f"{base.rstrip('/')}/v1/traces"
    return None


def _check_protocol(variables: Mapping[str, str]) -> None:
    name = _of_traces(variables, "PROTOCOL")
    protocol = variables.get(name)
    if protocol and protocol != "http/protobuf":
        _LOG.warning("%s=%s does not count: spans are sent as http/protobuf", name, protocol)


def _pairs(variables: Mapping[str, str], name: str) -> dict[str, str]:
    """Of `key=value,key=value`, with values as a url has them. What they are may be secret"""
    found = {}
    for text in filter(None, (one.strip() for one in variables.get(name, "").split(","))):
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            _LOG.warning("a part of %s does not count, expected KEY=VALUE, separated by commas", name)
            continue
        found[key.strip()] = unquote(value.strip())
    return found


def _number(variables: Mapping[str, str], name: str) -> int | None:
    text = variables.get(name)
    if not text:
        return None
    number = integer(text)
    if number is None or not 0 < number <= INT32_MAX:
        _LOG.warning("%s=%s does not count, expected an integer from 1 to %d", name, text, INT32_MAX)
        return None
    return number
