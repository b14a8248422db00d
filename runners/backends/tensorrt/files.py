"""The files of one version: a plan for each kind of GPU, the ONNX file beside it, and what is built of that"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ConfigInvalid
from ...repository.layout import model_file
from ..files import ModelFiles
from .cuda import Gpu
from .kept import content_of, kept_name, timings_name
from .library import version
from .recipe import Recipe
from .shapes import Shapes, read_shapes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...repository.messages import ModelConfig
    from ..steps import Placed

__all__ = ["PlanFiles"]

_DEFAULT = "model.plan"
_ONNX, _DEFAULT_ONNX = "kushi.onnx", "model.onnx"
_FOLDER = "tensorrt"


class PlanFiles:
    """Of a version that is about to be opened"""

    def __init__(self, model: Placed, settings: Mapping[str, str]) -> None:
        self.config = model.config
        self._directory = model.source.versions[model.version]
        self._files = ModelFiles(model.source, model.version, settings)
        self.plugins = settings.get("plugins", "")
        self.recipe = _recipe(model.config)
        self.onnx = self._onnx()

    def stated(self, owner: Gpu) -> Path:
        """The plan that the configuration names for this kind of GPU, whether or not it is there"""
        name = self.config.cc_model_filenames.get(owner.compute_capability) or self.config.default_model_filename
        try:
            return model_file(self._directory, name or _DEFAULT)
        except ConfigInvalid:
            if self.onnx is None:
                raise
            return self._directory / (name or _DEFAULT)

    def built(self, owner: Gpu) -> Path:
        """Where the plan is kept that is built of the ONNX file for this GPU"""
        if self.onnx is None:
            raise ConfigInvalid(f"there is no ONNX file in '{self._directory}' of which a plan could be built")
        name = kept_name(
            self._content,
            self.recipe,
            version=version(),
            gpu=owner.name,
            compute_capability=owner.compute_capability,
        )
        return self._path(f"{_FOLDER}/{name}")

    @cached_property
    def _content(self) -> str:
        """Read once for all GPUs"""
        return content_of(self.onnx) if self.onnx else ""

    def timing_cache(self, owner: Gpu) -> Path:
        """What builds of this version of the model have measured with this TensorRT, on this kind of GPU"""
        name = timings_name(version=version(), gpu=owner.name, compute_capability=owner.compute_capability)
        return self._path(f"{_FOLDER}/{name}")

    def _path(self, name: str) -> Path:
        return Path(self._files.output(name, "the plans of this model"))

    def _onnx(self) -> Path | None:
        stated = _ONNX in self.config.parameters
        name = self.config.parameters[_ONNX].string_value if stated else _DEFAULT_ONNX
        try:
            return model_file(self._directory, name, inside=_DEFAULT_ONNX)
        except ConfigInvalid:
            if stated:
                raise
            return None


def _recipe(config: ModelConfig) -> Recipe:
    """What a plan of the model's ONNX file has to take"""

    def shapes(key: str) -> Shapes:
        text = config.parameters[key].string_value if key in config.parameters else ""
        return read_shapes(text, f"parameter '{key}' of model '{config.name}'")

    most = config.max_batch_size
    preferred = [size for size in config.dynamic_batching.preferred_batch_size if size <= most]
    return Recipe(
        shapes("kushi.min_shapes"),
        shapes("kushi.opt_shapes"),
        shapes("kushi.max_shapes"),
        batch=(1, max(preferred, default=most), most) if most > 0 else None,
    )
