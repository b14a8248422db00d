"""Plans in the memory of the GPUs of a model: each once, for all instances there"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from kushi_native import PythonModel

from ...errors import ConfigInvalid
from .. import Bound, Opened
from ..optional_inputs import refuse_optional_inputs
from ..pinned import PinnedBudget
from .completion import check_shape_tensors, complete, infos
from .cuda import Gpu, gpu
from .instance import make_instance
from .kept import mark_used
from .library import LOGGER
from .opening import OpenPlan, open_plan
from .options import InstancePlace, TensorRTOptions
from .profiles import listed
from .reading import read_plan
from .unfinished import Missing, not_yet

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ...repository.messages import ModelConfig
    from .files import PlanFiles

__all__ = ["OpenedPlans"]

_LOG = logging.getLogger(__name__)


class OpenedPlans(Opened):
    """The plan of each GPU"""

    def __init__(
        self,
        files: PlanFiles,
        options: TensorRTOptions,
        places: Sequence[InstancePlace],
        *,
        runs_code_of_plans: bool,
        budget: PinnedBudget,
    ) -> None:
        self._options = options
        self._budget = budget
        self._places = places
        self._open = partial(open_plan, runs_code_of_plans=runs_code_of_plans)
        self._opened: dict[int, OpenPlan] = {}
        missing: dict[Path, Missing] = {}
        """GPUs of one kind share a plan"""
        for number in dict.fromkeys(place.gpu for place in places):
            found = self._open_for(files, gpu(number))
            if isinstance(found, Missing):
                missing.setdefault(found.target, found)
            else:
                self._opened[number] = found
        if missing:
            raise not_yet(list(missing.values()), files)
        plans = [read_plan(opened.engine, LOGGER.why) for opened in self._opened.values()]
        self._plan = plans[0]
        if any(plan != self._plan for plan in plans):
            raise ConfigInvalid("the plans for different GPUs have different inputs, outputs or profiles")

    def complete(self, config: ModelConfig, default_max_batch_size: int) -> ModelConfig:  # noqa: ARG002 - profiles say it
        """Filled in from tensors and profiles"""
        chosen = [number for place in self._places for number in listed(place.profiles, self._plan, place.group)]
        return complete(config, self._plan, chosen)

    def bind(self, config: ModelConfig) -> Bound:
        """Held against the plan"""
        refuse_optional_inputs(config, "TensorRT")
        check_shape_tensors(config, self._plan)
        return Bound(
            sessions=lambda _threads: self._sessions(config),
            inputs=infos(config, self._plan.inputs),
            outputs=infos(config, self._plan.outputs),
        )

    def _sessions(self, config: ModelConfig) -> list[PythonModel]:
        return [
            PythonModel(
                make_instance(
                    self._opened[place.gpu],
                    self._plan,
                    config,
                    self._options,
                    place=place,
                    profiles=listed(place.profiles, self._plan, place.group),
                    budget=self._budget if config.optimization.input_pinned_memory.enable else PinnedBudget(0),
                )
            )
            for place in self._places
        ]

    def _open_for(self, files: PlanFiles, owner: Gpu) -> OpenPlan | Missing:
        """That of the configuration, or else the one that was built of the ONNX file, which may be still to be done"""
        stated = files.stated(owner)
        try:
            if stated.exists() or files.onnx is None:
                return self._open(stated, owner)
            why = f"there is no plan '{stated}'"
        except ConfigInvalid as error:
            if files.onnx is None:
                raise
            why = str(error)
        built = files.built(owner)
        if built.exists():
            mark_used(built)
            try:
                opened = self._open(built, owner)
            except (ConfigInvalid, FileNotFoundError) as error:
                _LOG.warning("%s: it is built again", error)
            else:
                _LOG.info("%s: '%s', which was built of '%s', is served", why, built, files.onnx.name)
                return opened
        return Missing(built, owner, why)
