"""The BentoML service of an engine: it has no endpoints of its own, and its one worker keeps the engine's process"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

import bentoml
from _bentoml_sdk.models import BentoModel, Model
from bentoml import serving

from ..engine import Engine
from ..repository.layout import BARE_SUFFIXES
from ..settings import given_in_environment
from .place import address_of, place_of, remove_left_behind
from .presence import Attendance
from .process import EngineProcess
from .relay.origin import Origin
from .web.edge import EdgeService

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .place import Place

__all__ = ["EngineService", "engine"]

Source: TypeAlias = "str | Path | Model[Any] | bentoml.Model"
_EXIT_SECONDS = 30.0
_OFF_UNLESS_ASKED_FOR = {
    "exit_on_error": ("exit_on_error",),
    "allow_http": ("allow_http", "http_port", "http_address"),
    "allow_metrics": ("allow_metrics", "metrics_port", "metrics_address"),
}


class EngineService(EdgeService):
    """What engine() makes"""

    def open(self) -> Engine:
        """The models in this process"""
        return Engine(*self.repositories())

    def repositories(self) -> list[str | Path]:
        """Where the models lie; those of BentoML's store are fetched, in the versions that a Bento was built with"""
        built = {}
        if self.bento is not None:
            (service,) = (service for service in self.bento.info.services if service.name == self.name)
            built = {id(model): info.to_model() for model, info in zip(self.models, service.models, strict=True)}
        return [path for source in self.inner.sources for path in _paths(built.get(id(source), source))]

    @property
    def place(self) -> Place | None:
        """The sockets of its engine; None outside `bentoml serve`"""
        address = address_of(self.name)
        return place_of(address) if address else None

    @property
    def origin(self) -> Origin | None:
        return Origin.at(self.place) if self.place else None


class _Lifecycle:
    """The worker: BentoML makes one of it"""

    bento_service: EngineService
    sources: ClassVar[tuple[Source, ...]] = ()
    flags: ClassVar[tuple[str, ...]] = ()

    @bentoml.on_deployment
    def restart_workers() -> None:
        """
        Runs in BentoML's supervisor, which in containers starts no worker again: one of several would be missed by
        nobody. It knows the worker of this service by now, whose end is still that of all: an orchestrator sees it.
        """
        serving.running_inside_container = lambda: False  # type: ignore[assignment] # it has a cache, of no use here

    @bentoml.on_startup
    async def start_engine(self) -> None:
        self._place = self.bento_service.place
        if self._place is None:
            return
        repositories = await asyncio.to_thread(self.bento_service.repositories)
        flags = [*(f"--model-repository={path}" for path in repositories), *self.flags]
        remove_left_behind()
        self._attendance = Attendance(self._place.presence)
        # In a container the end of this worker is that of the service, which an orchestrator sees.
        self._process = EngineProcess(
            flags, self._place, _EXIT_SECONDS, keep_trying=not serving.running_inside_container()
        )
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
        that may be repeated. The variables KUSHI_* count as well, and keep secrets out of the list of processes.
    config: as for bentoml.service, such as `resources={"gpu": 1}`.
    """
    asked = flags or {}
    given = {**_switched_off(asked), **asked}
    words = tuple(f"--{flag.replace('_', '-')}={_word(one)}" for flag, value in given.items() for one in _each(value))
    known = [BentoModel(source.tag) if isinstance(source, bentoml.Model) else source for source in sources]
    members: dict[str, Any] = {"sources": tuple(known), "flags": words, "__module__": __name__}
    # so that BentoML packs them
    members |= {f"model_{place}": source for place, source in enumerate(known) if isinstance(source, Model)}
    inner = type(name, (_Lifecycle,), members)
    return cast(
        "EngineService", bentoml.service(name=name, service_class=EngineService, **{**config, "workers": 1})(inner)
    )


def _paths(source: str | Path | Model[Any]) -> list[str | Path]:
    if not isinstance(source, Model):
        return [source]
    found = source.resolve()
    folder = Path(found.path if isinstance(found, bentoml.Model) else found)
    return sorted(file for file in folder.iterdir() if file.suffix in BARE_SUFFIXES) or [folder]


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
