"""The BentoML service of an engine: it has no endpoints of its own, and its one worker keeps the engine's process"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

import bentoml
from bentoml.models import BentoModel, HuggingFaceModel

from ..engine import Engine
from ..errors import KushiError, about
from ..repository.discovery import bare_backend
from ..settings import check_flags, flag_of, given_in_environment, read_settings
from .internals.stored_models import built_with
from .internals.supervisor import is_in_container
from .place import place_of, remove_left_behind
from .presence import Attendance
from .process import EngineProcess
from .relay.origin import Origin
from .supervisor import replace_workers_in_containers, replace_workers_soon
from .web.edge import EdgeService

if TYPE_CHECKING:
    from .place import Place

__all__ = ["EngineService", "engine"]

Source: TypeAlias = str | Path | BentoModel | HuggingFaceModel | bentoml.Model
_OFF_UNLESS_ASKED_FOR = {
    "exit_on_error": ("exit_on_error",),
    "allow_http": ("allow_http", "http_port", "http_address"),
    "allow_grpc": ("allow_grpc", "grpc_port", "grpc_address"),
    "allow_metrics": ("allow_metrics", "metrics_port", "metrics_address"),
}


class EngineService(EdgeService):
    """What engine() makes"""

    def open(self) -> Engine:
        """The models in this process, as the flags and the variables KUSHI_* say; it opens no ports"""
        return Engine(*self.repositories(), options=read_settings(self.flags).engine)

    @property
    def flags(self) -> Mapping[str, object]:
        settings: dict[str, object] = self.inner.settings()
        return settings

    def repositories(self) -> list[str | Path]:
        """Where the models lie; those of BentoML's store are fetched, in the versions that a Bento was built with"""
        built = built_with(self)
        return [path for source in self.inner.sources for path in _paths(built.get(id(source), source))]

    @property
    def place(self) -> Place | None:
        """The sockets of its engine; None outside `bentoml serve`"""
        return place_of(self.url) if self.url else None

    @property
    def origin(self) -> Origin | None:
        return Origin.at(self.place, speaks_grpc=self.speaks_grpc) if self.place else None

    @property
    def speaks_grpc(self) -> bool:
        """At the port of a Bento: unless somebody has said that it shall not, or has locked what comes beside it"""
        asked: Mapping[str, object] = self.inner.asked
        try:
            settings = read_settings(asked)
        except KushiError:
            # the engine says what is wrong
            return False
        return settings.doors.grpc.enabled is not False and not settings.locks_plain_grpc


class _Lifecycle:
    """The worker: BentoML makes one of it"""

    bento_service: EngineService
    sources: ClassVar[tuple[Source, ...]] = ()
    asked: ClassVar[Mapping[str, object]] = MappingProxyType({})

    @classmethod
    def settings(cls) -> dict[str, object]:
        """What the flags say, and where they and the variables say nothing, what an engine behind a Bento needs"""
        return {**_switched_off(cls.asked), **cls.asked}

    @classmethod
    def words(cls) -> list[str]:
        """The same as the command line of `kushi serve` has it"""
        given = cls.settings().items()
        return [f"--{flag_of(name)}={_word(one)}" for name, value in given for one in _each(value)]

    @bentoml.on_deployment
    def look_after_workers() -> None:
        """
        Runs in BentoML's supervisor, which has prepared the worker of this service by now: in a container the end of
        that one is the end of all, which an orchestrator sees.
        """
        replace_workers_soon()
        replace_workers_in_containers()

    @bentoml.on_startup
    async def start_engine(self) -> None:
        self._place = self.bento_service.place
        if self._place is None:
            return
        repositories = await asyncio.to_thread(self.bento_service.repositories)
        flags = [*(f"--model-repository={path}" for path in repositories), *self.words()]
        if self.bento_service.speaks_grpc:
            flags.append(f"--grpc-handover-socket={self._place.grpc}")
        remove_left_behind()
        # In a container the end of this worker is that of the service, which an orchestrator sees.
        keep_trying = not is_in_container()
        exit_seconds = self.bento_service.limits.exit_seconds
        self._process = EngineProcess(flags, self._place, exit_seconds, keep_trying=keep_trying)
        self._attendance = Attendance(self._place.presence)
        await self._process.start()

    @bentoml.on_shutdown
    async def stop_engine(self) -> None:
        """Waits for the workers, who stop at the same time and finish what they have accepted"""
        if self._place is None:
            return
        await self._attendance.until_empty()
        self._attendance.close()
        await self._process.stop()

    async def __is_ready__(self) -> bool:
        return self._place is None or await self._process.is_ready()


def engine(
    *sources: Source,
    name: str = "Engine",
    flags: Mapping[str, object] | None = None,
    **config: Any,  # noqa: ANN401 - of bentoml.service
) -> EngineService:
    """
    A service that runs the models of repositories, for depends().

    sources: directories of models, model files, or models of BentoML's store that hold either, as
        `bentoml.models.BentoModel("digits:latest")`.
    name: that of the service.
    flags: of `kushi serve`, with underscores: `{"model_control_mode": "explicit", "http_port": 8000}`; a list for one
        that may be repeated. The variables KUSHI_* count as well, and keep secrets out of the list of processes. A
        wrong flag is refused here.
    config: as for bentoml.service, such as `resources={"gpu": 1}`.
    """
    with about("flags"):
        asked = {name.replace("-", "_"): value for name, value in (flags or {}).items()}
        check_flags(asked)
    known = [BentoModel(source.tag) if isinstance(source, bentoml.Model) else source for source in sources]
    members: dict[str, Any] = {"sources": tuple(known), "asked": asked, "__module__": __name__}
    # so that BentoML packs them
    members |= {f"model_{place}": source for place, source in enumerate(known) if _is_stored(source)}
    inner = type(name, (_Lifecycle,), members)
    return cast(
        "EngineService", bentoml.service(name=name, service_class=EngineService, **{**config, "workers": 1})(inner)
    )


def _is_stored(source: Source) -> bool:
    return isinstance(source, BentoModel | HuggingFaceModel)


def _paths(source: Any) -> list[str | Path]:  # noqa: ANN401 - a path or a model: BentoML's say no types
    if not _is_stored(source):
        return [source]
    found = source.resolve()
    folder = Path(found.path if isinstance(found, bentoml.Model) else found)
    return sorted(file for file in folder.iterdir() if bare_backend(file)) or [folder]


def _each(value: object) -> tuple[object, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _switched_off(flags: Mapping[str, object]) -> dict[str, bool]:
    """
    Other than for `kushi serve`: a model that does not load stops no other one, and an engine behind a Bento has ports
    of its own only where somebody asks for them
    """
    return {
        switch: False
        for switch, names in _OFF_UNLESS_ASKED_FOR.items()
        if not given_in_environment(*names) and flags.keys().isdisjoint(names)
    }
