"""Traces: which requests are traced, and where that goes"""

import errno
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

from ..environment import variables
from ..errors import ConfigInvalid
from ..integers import INT32_MAX
from ..telemetry_variables import Telemetry, telemetry
from .definition import Group, Naming, Setting, setting
from .kinds import Choice, Integer, Several, Text

__all__ = ["TraceOptions"]

_URL = "http://localhost:4318/v1/traces"
_TIMEOUT_MS = 10_000
_MAX_QUEUE_SIZE = 2048
_SCHEDULE_DELAY_MS = 5000
_MAX_EXPORT_BATCH_SIZE = 512
_OFF, _TIMESTAMPS, _TENSORS = "OFF", "TIMESTAMPS", "TENSORS"
_LEVELS: Mapping[str, str] = {
    **dict.fromkeys(("off", "false"), _OFF),
    **dict.fromkeys(("timestamps", "true", "on", "min", "max"), _TIMESTAMPS),
    "tensors": _TENSORS,
}


class _Levels(Several):
    """What is recorded, in the words of tritonserver"""

    def __init__(self) -> None:
        super().__init__("{OFF,TIMESTAMPS,TENSORS}")
        self.expected = "OFF, TIMESTAMPS or TENSORS"

    @property
    def expected_object(self) -> str:
        return f"a tuple of {self.expected}"

    def accepts(self, value: object) -> bool:
        return super().accepts(value) and all(one.lower() in _LEVELS for one in _texts(value))

    def check(self, value: object, path: str) -> None:
        if not super().accepts(value) or not set(_texts(value)) <= {*_LEVELS.values()}:
            raise ConfigInvalid(f"{path} is {value!r}, expected {self.expected_object}")

    def read(self, given: object, source: str) -> tuple[str, ...]:
        return tuple(_LEVELS[one.lower()] for one in self.texts(given, source))


class _Attributes(Several):
    """What all spans say of their server"""

    def __init__(self) -> None:
        super().__init__("KEY=VALUE")
        self.expected = "KEY=VALUE"

    @property
    def expected_object(self) -> str:
        return "a tuple of texts KEY=VALUE"

    def accepts(self, value: object) -> bool:
        return super().accepts(value) and all(one.partition("=")[0] and "=" in one for one in _texts(value))


class _Config(Several):
    """Settings as tritonserver takes them"""

    separator = ";"
    separators = "semicolons"

    def __init__(self) -> None:
        super().__init__("[MODE,]SETTING=VALUE")


def _texts(value: object) -> Iterable[str]:
    return value if isinstance(value, list | tuple) else ()


# as --trace-config has them, by the mode that it names: the fields
_FIELDS: Mapping[str, Mapping[str, str]] = {
    "": {"level": "level", "rate": "rate", "count": "count", "mode": "mode"},
    "triton": {"file": "file", "log-frequency": "log_frequency"},
    "opentelemetry": {
        "url": "url",
        "resource": "resource",
        "bsp_max_queue_size": "max_queue_size",
        "bsp_schedule_delay": "schedule_delay_ms",
        "bsp_max_export_batch_size": "max_export_batch_size",
    },
}


@dataclass(frozen=True, kw_only=True)
class TraceOptions(Group):
    """
    Which requests are traced, and where that goes.

    Clients may change the level, the rate, the count and the log frequency while the server runs.
    """

    title = "trace"
    switches: ClassVar[Mapping[str, Setting]] = MappingProxyType(
        {
            "config": Setting(
                "trace-config",
                _Config(),
                "Any of these settings, as tritonserver takes them: level, rate, count and mode; triton,file and "
                "triton,log-frequency; opentelemetry,url, opentelemetry,resource, opentelemetry,bsp_max_queue_size, "
                "opentelemetry,bsp_schedule_delay and opentelemetry,bsp_max_export_batch_size. It wins over their own "
                "flags.",
                default=(),
            )
        }
    )

    level: tuple[str, ...] = setting(
        "trace-level",
        _Levels(),
        "What is recorded of a request: when its parts began, its tensors, or nothing (default: OFF).",
        default=(),
    )
    rate: int = setting(
        "trace-rate",
        Integer(0, INT32_MAX),
        "Trace one of so many requests; 0: those alone that come with a sampled trace, where {mode}=opentelemetry.",
        default=1000,
    )
    count: int = setting(
        "trace-count", Integer(-1, INT32_MAX), "How many traces are made at most; -1: any number.", default=-1
    )
    mode: Literal["triton", "opentelemetry"] = setting(
        "trace-mode",
        Choice("triton", "opentelemetry"),
        "Where traces go: to {file}, in Triton's form, or to the collector at {url}.",
        default="triton",
    )
    file: str | None = setting(
        "trace-file",
        Text("PATH"),
        "File of traces; with {log_frequency}, what the names of the files begin with.",
        default=None,
    )
    log_frequency: int = setting(
        "trace-log-frequency",
        Integer(0, INT32_MAX),
        "Traces in one file, {file}.0 and so on; 0: all go to {file}.",
        default=0,
    )
    url: str | None = setting(
        "trace-url",
        Text("URL"),
        f"Where a collector takes OTLP over HTTP (default: what the variables of OpenTelemetry say, or {_URL}).",
        default=None,
    )
    resource: tuple[str, ...] = setting(
        "trace-resource",
        _Attributes(),
        "What all spans say of this server; service.name is triton-inference-server unless it is given.",
        default=(),
    )
    max_queue_size: int | None = setting(
        "trace-bsp-max-queue-size",
        Integer(1, INT32_MAX),
        f"Spans that wait for the collector at most; more are dropped (default: {_MAX_QUEUE_SIZE}).",
        default=None,
    )
    schedule_delay_ms: int | None = setting(
        "trace-bsp-schedule-delay",
        Integer(1, INT32_MAX),
        f"Milliseconds after which spans are sent, however few (default: {_SCHEDULE_DELAY_MS}).",
        default=None,
    )
    max_export_batch_size: int | None = setting(
        "trace-bsp-max-export-batch-size",
        Integer(1, INT32_MAX),
        f"Spans that are sent together at most (default: {_MAX_EXPORT_BATCH_SIZE}, or what may wait).",
        default=None,
    )

    @classmethod
    def of(cls, values: Mapping[str, Any], name: Naming) -> Self | None:
        stated = {key: value for key, value in values.items() if key not in cls.switches}
        members = dict(cls.members())
        source = name("config")
        found: dict[str, Any] = {}
        for text in values.get("config", ()):
            field, value = _entry(text, source)
            member = members[field]
            assert isinstance(member, Setting)  # noqa: S101 - all of these are
            given = member.kind.read([value] if isinstance(member.kind, Several) else value, f"{source} {text}")
            several = isinstance(given, tuple)
            found[field] = (*found.get(field, ()), *given) if several else given  # type: ignore[misc] # a tuple then
        for field in ("level", "resource"):
            found[field] = (*stated.get(field, ()), *found.get(field, ()))
        return cls(**{**stated, **found})

    def check(self, name: Naming) -> None:
        if self.max_export_batch_size and self.max_queue_size and self.max_export_batch_size > self.max_queue_size:
            raise ConfigInvalid(
                f"{name('max_export_batch_size')} is {self.max_export_batch_size}, expected no more than "
                f"{name('max_queue_size')}, which is {self.max_queue_size}"
            )
        if self.levels and self.mode == "triton" and self.file is None:
            raise ConfigInvalid(
                f"{name('level')} asks for traces and nothing says where they go, expected {name('file')}, or "
                f"{name('mode')}=opentelemetry"
            )

    @property
    def levels(self) -> frozenset[str]:
        """What is recorded: OFF anywhere is nothing"""
        return frozenset() if _OFF in self.level else frozenset(self.level)

    @property
    def native(self) -> dict[str, Any]:
        """The options as the native core takes them"""
        said = telemetry(variables("OTEL_")) if self.mode == "opentelemetry" else None
        levels = frozenset[str]() if said and said.disabled else self.levels
        if self.file and said is None:
            _check_writable(Path(self.file), is_one_file=self.log_frequency == 0)
        return {
            "timestamps": _TIMESTAMPS in levels,
            "tensors": _TENSORS in levels,
            "rate": self.rate,
            "count": self.count,
            "log_frequency": self.log_frequency,
            "file": self.file or "",
            "collector": said and self._collector(said),
        }

    def _collector(self, said: Telemetry) -> dict[str, Any]:
        """What is not stated here is as the environment says"""
        attributes = dict(one.split("=", maxsplit=1) for one in self.resource)
        resource = {"service.name": "triton-inference-server", **said.resource, **attributes}
        queued = self.max_queue_size or said.max_queue_size or _MAX_QUEUE_SIZE
        together = self.max_export_batch_size or said.max_export_batch_size or _MAX_EXPORT_BATCH_SIZE
        return {
            "url": self.url or said.url or _URL,
            "headers": [*said.headers.items()],
            "timeout_ms": said.timeout_ms or _TIMEOUT_MS,
            "resource": [*resource.items()],
            "max_queue_size": queued,
            "schedule_delay_ms": self.schedule_delay_ms or said.schedule_delay_ms or _SCHEDULE_DELAY_MS,
            "max_export_batch_size": min(together, queued),
        }


def _check_writable(file: Path, *, is_one_file: bool) -> None:
    """Before the first trace, which would be missed. Makes nothing"""
    try:
        reason = _why_not_writable(file, is_one_file=is_one_file)
    except OSError as error:
        reason = error.errno or errno.EACCES
    if reason:
        raise ConfigInvalid(f"traces cannot be written to '{file}' (--trace-file): {os.strerror(reason)}")


def _why_not_writable(file: Path, *, is_one_file: bool) -> int:
    if not file.parent.is_dir():
        return errno.ENOTDIR if file.parent.exists() else errno.ENOENT
    # several have numbers behind their names
    if is_one_file and file.is_dir():
        return errno.EISDIR
    there = file if is_one_file and file.exists() else file.parent
    return 0 if os.access(there, os.W_OK) else errno.EACCES


def _entry(text: str, source: str) -> tuple[str, str]:
    """The field and its value, of one --trace-config"""
    key, equals, value = text.partition("=")
    mode, comma, name = key.rpartition(",")
    if (comma and mode.lower() not in _FIELDS) or (comma and not mode):
        raise ConfigInvalid(f"{source} {text}: unknown mode {mode!r}, expected 'triton' or 'opentelemetry'")
    if not equals or not name or not value:
        raise ConfigInvalid(f"{source}: expected [MODE,]SETTING=VALUE, got {text!r}")
    known = _FIELDS[mode.lower()]
    if name not in known:
        raise ConfigInvalid(f"{source} {text}: unknown setting {name!r}, expected {' or '.join(known)}")
    return known[name], value
