"""Loads networks of OpenVINO: their shapes, what they are compiled for, how many threads"""

import glob
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path

import kushi_native

from ...errors import ConfigInvalid, Unsupported
from ...repository.complete import complete
from ...repository.messages import ModelConfig
from ...repository.specification import instances_of
from ...repository.tensors import BYTES_OF, TensorInfo, model_dims, tensor_infos
from ...threads import SHORT_RUN_SECONDS, intra_op_threads
from .. import Backend, Bound, Opened, Placed, Prepared
from ..cores import cores_for_all
from ..files import ModelFiles
from ..measure import measured_seconds
from ..openvino_wheel import start
from .constants import check_constants
from .options import NetworkOptions, Properties, check_cores_alone, read_options
from .strings import check_strings

__all__ = ["OpenVinoBackend"]

_LOG = logging.getLogger(__name__)
_WEIGHTS = (".bin", ".pdiparams", ".index")
"""Of its own format, of Paddle's, and of TensorFlow's checkpoints, which have shards as well"""


_MOST_BATCH_BYTES = 1024 * 1024 * 1024


class OpenVinoBackend(Backend):
    """OpenVINO, through its C API"""

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__(settings)
        start()

    def why_no_gpu(self) -> str:
        return "OpenVINO has no GPUs of NVIDIA; those of Intel are said by the parameter 'TARGET_DEVICE'"

    def instead_of_kind_model(self) -> str:
        return "leave the kind out, the parameter 'TARGET_DEVICE' says what computes, as AUTO or HETERO:GPU,CPU"

    def prepare(self, model: Placed) -> Prepared:
        files = ModelFiles(model.source, model.version, self.settings)
        options = read_options(model.config, files, kushi_native.openvino_devices())
        check_cores_alone(model.config, options, len(model.places))
        return Prepared(lambda path: _Opened(path, options), threads=options.threads_of(len(model.places)))

    def locate(self, directory: Path, name: str) -> Path:
        """A TensorFlow SavedModel is a directory"""
        path = directory / name
        return path if (path / "saved_model.pb").is_file() else super().locate(directory, name)

    def weights_beside(self, path: Path) -> Sequence[str]:
        """It looks into a file for its format, whatever the name is"""
        shards = path.parent.glob(f"{glob.escape(path.stem)}.data-*")
        return [*(f"{path.stem}{suffix}" for suffix in _WEIGHTS), *(shard.name for shard in shards)]


class _Opened(Opened):
    """A network that was read. Its shapes follow the configuration, before it is completed and held against them"""

    def __init__(self, path: Path, options: NetworkOptions) -> None:
        if path.is_file():
            check_constants(path)
        self._network = kushi_native.OpenVinoNetwork(str(path), options.extension)
        self._options = options
        self._shaped_for: ModelConfig | None = None
        self._fixed = False
        self._seconds: float | None = None
        check_strings(path, [*self._network.inputs, *self._network.outputs])

    def complete(self, config: ModelConfig, default_max_batch_size: int) -> ModelConfig:
        self._shape(config)
        return complete(config, self._inputs(), self._outputs(), default_max_batch_size)

    def bind(self, config: ModelConfig) -> Bound:
        self._shape(config)
        first = None if self._options.divides_itself else self._on_caller()
        return Bound(
            sessions=partial(self._sessions, instances_of(config), first),
            threads=partial(self._threads, config, first),
            inputs=self._inputs(),
            outputs=self._outputs(),
            inline=first is not None,
        )

    def _threads(self, config: ModelConfig, first: kushi_native.OpenVinoCompiled | None) -> int:
        """Of each instance. OpenVINO may know better, then it says nothing here"""
        instances, stated = instances_of(config), self._options.threads_of(instances_of(config))
        if self._options.keeps_cores:
            return 1
        if first and (not stated or instances > 1):
            self._seconds = measured_seconds(first, config, self._inputs())
        if stated or not first:
            return stated or 1
        return intra_op_threads(0, self._seconds, instances, cores_for_all(config))

    def _sessions(
        self, instances: int, first: kushi_native.OpenVinoCompiled | None, threads: int
    ) -> Sequence[kushi_native.OpenVinoCompiled]:
        """
        A network without threads of its own takes one run at a time, and needs no hand-over: each instance of a short
        model has one, and of a model that stays on its cores. The instances of a long model share one network, and its
        weights.
        """
        short = self._seconds is not None and self._seconds < SHORT_RUN_SECONDS
        if first and threads == 1 and (instances == 1 or short or self._options.keeps_cores):
            return [first, *(self._on_caller() for _ in range(instances - 1))]
        return [self._compile(self._options.in_streams(instances, threads), requests=instances)]

    def _on_caller(self) -> kushi_native.OpenVinoCompiled:
        return self._compile(self._options.on_caller(), requests=1, runs_on_caller=True)

    def _compile(
        self, properties: Properties, *, requests: int, runs_on_caller: bool = False
    ) -> kushi_native.OpenVinoCompiled:
        options = {
            "device": self._options.device,
            "properties": properties,
            "requests": requests,
            "runs_on_caller": runs_on_caller,
            "fixed_rows": ("pad" if self._options.pad else "refuse") if self._fixed else None,
        }
        return self._network.compile(json.dumps(options))

    def _inputs(self) -> list[TensorInfo]:
        return self._with_open_batch(tensor_infos(self._network.inputs))

    def _outputs(self) -> list[TensorInfo]:
        return self._with_open_batch(tensor_infos(self._network.outputs))

    def _with_open_batch(self, tensors: Sequence[TensorInfo]) -> list[TensorInfo]:
        """As clients see it, who send any number of rows whatever the network takes"""
        if not self._fixed:
            return list(tensors)
        return [replace(one, dims=(-1, *one.dims[1:])) if one.dims else one for one in tensors]

    def _shape(self, config: ModelConfig) -> None:
        """
        Gives the network the shapes that the configuration says, and where that has batches, a first dimension of any
        size. A network that cannot have that gets one of the maximum batch size, as Triton's backend always does.
        """
        if self._shaped_for == config:
            return
        self._shaped_for = ModelConfig()
        self._shaped_for.CopyFrom(config)
        self._fixed = False
        if config.max_batch_size == 0:
            self._reshape(self._stated(config))
            return
        if not self._options.skip_dynamic_batch:
            try:
                self._reshape(self._batched(config, -1))
            except ConfigInvalid as error:
                _LOG.info("model '%s' cannot have batches of any size: %s", config.name, error)
            else:
                served = {one.name for one in config.output}
                outputs = [one for one in tensor_infos(self._network.outputs) if not served or one.name in served]
                if all(one.any_rank or (one.dims and one.dims[0] == -1) for one in outputs):
                    return
        self._check_size(config)
        self._reshape(self._batched(config, config.max_batch_size))
        self._fixed = True
        if not self._options.pad:
            _LOG.warning(
                "model '%s' takes batches of %d rows and no others, which no request may be alone: set the parameter "
                "'ENABLE_BATCH_PADDING' to 'YES'",
                config.name,
                config.max_batch_size,
            )

    def _check_size(self, config: ModelConfig) -> None:
        """Each batch has all rows, whatever its requests have"""
        rows = self._batched(config, 1)
        size = config.max_batch_size * sum(
            BYTES_OF.get(one.datatype, 1) * prod(rows[one.name])
            for one in tensor_infos(self._network.inputs)
            if one.name in rows and min(rows[one.name], default=1) >= 0
        )
        if size > _MOST_BATCH_BYTES:
            raise Unsupported(
                f"model '{config.name}' takes batches of {config.max_batch_size} rows and no others, and its inputs "
                f"have {size} bytes then, expected at most {_MOST_BATCH_BYTES}: lower max_batch_size"
            )

    def _reshape(self, shapes: Mapping[str, Sequence[int]]) -> None:
        declared = {one.name: (None if one.any_rank else one.dims) for one in tensor_infos(self._network.inputs)}
        changed = {name: list(dims) for name, dims in shapes.items() if declared.get(name) != tuple(dims)}
        if changed:
            self._network.reshape(changed)

    def _stated(self, config: ModelConfig) -> dict[str, tuple[int, ...]]:
        """The shapes in the configuration, where they are to be those of the network"""
        if not self._options.reshape:
            return {}
        batch = (-1,) if config.max_batch_size else ()
        return {one.name: (*batch, *model_dims(one)) for one in config.input}

    def _batched(self, config: ModelConfig, rows: int) -> dict[str, tuple[int, ...]]:
        stated = self._stated(config)
        shapes = {one.name: stated.get(one.name, one.dims) for one in tensor_infos(self._network.inputs)}
        return {name: (rows, *dims[1:]) for name, dims in shapes.items() if dims}
