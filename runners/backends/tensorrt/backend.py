"""TensorRT, for the pipeline that loads models"""

from collections.abc import Sequence
from pathlib import Path

from ...repository.values import boolean
from .. import Backend, Placed, Prepared, driver
from .cuda import gpu
from .files import PlanFiles
from .library import load_plugins
from .opened import OpenedPlans
from .options import InstancePlace, instance_places, read_options

__all__ = ["TensorRTBackend"]


class TensorRTBackend(Backend):
    """One is made for each load"""

    _files: PlanFiles
    _first: InstancePlace

    def gpus(self) -> Sequence[int]:
        return driver.gpus()

    def why_no_gpu(self) -> str:
        return driver.why_none()

    def instead_of_kind_model(self) -> str:
        return "its only kind is KIND_GPU"

    def prepare(self, model: Placed) -> Prepared:
        options = read_options(model.config)
        places = instance_places(model)
        load_plugins(self.settings.get("plugins", ""))
        self._files = PlanFiles(model, self.settings)
        self._first = places[0]
        runs_code = boolean(self.settings.get("version-compatible", "false")) is True
        files, budget = self._files, self.limits.pinned
        return Prepared(lambda _: OpenedPlans(files, options, places, runs_code_of_plans=runs_code, budget=budget))

    def locate(self, directory: Path, name: str) -> Path:  # noqa: ARG002 - the configuration may have several
        return self._files.stated(gpu(self._first.gpu))
