"""
Loads ONNX models: session, auto-completion, checks against the model, thread policy.

On the CPU all instances share one session, whose weights are in memory once. An instance has a session of its own
where the configuration gives it threads of its own, and wherever anything but the CPU computes.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import kushi_native

from ...errors import EngineFailed, about
from ...repository.backend_config import NO_SETTINGS
from ...repository.complete import check_against_model, complete, default_max_batch_size
from ...repository.labels import read_labels
from ...repository.layout import ModelSource, model_file
from ...repository.messages import ModelConfig, ModelInstanceGroup
from ...repository.normalize import fill_defaults, fill_instance_groups
from ...repository.specification import instances_of, specify
from ...repository.tensors import TensorInfo, scalar_names
from ...repository.validate import check_instance_groups, check_model, check_tensors
from ...threads import intra_op_threads, usable_cores
from .. import Loaded
from . import cuda
from .accelerators import check_accelerators, providers_at
from .files import ModelFiles
from .library import Runtime, start
from .options import SessionOptions, read_options
from .values import Provider

__all__ = ["load"]

_LOG = logging.getLogger(__name__)

_MEASURED_RUNS = 5
# tried in turn for dimensions that may vary: not so small that a long model looks short, then what any model takes
_VARIABLE_SIZES = (32, 1)
_Place = int | None
"""Where an instance is: the number of a GPU, or on the CPU"""


def load(
    source: ModelSource,
    config: ModelConfig,
    version: int,
    *,
    auto_complete: bool,
    settings: Mapping[str, str] = NO_SETTINGS,
) -> Loaded:
    """Opens one version on every device that its instances are on"""
    started = time.monotonic()
    runtime = start(settings)
    with about(source.stated_in):
        config = _placed(config, runtime)
        places = list(_places(config))
        check_accelerators(config, places, runtime)
        files = ModelFiles(source, version, settings)
        gpus = [place for place in places if place is not None]
        options = read_options(config, files, gpus, runtime.global_threads)
        providers = {place: providers_at(config, place, files) for place in places}
        path = model_file(source.versions[version], config.default_model_filename)
    sessions = _Sessions(path, options, providers, own_threads=_own_threads(options, runtime))
    first = next((place for place in places if not providers[place]), places[0])
    model = sessions.probe(first)
    inputs, outputs = _tensors(model.inputs), _tensors(model.outputs)
    with about(source.stated_in):
        if auto_complete:
            config = fill_defaults(complete(config, inputs, outputs, default_max_batch_size(settings)))
        check_model(config, source.name)
        check_tensors(config)
        check_against_model(config, inputs, outputs)
    threads = options.intra_op_threads or (1 if providers[first] else _threads(model, config, inputs))
    with about(source.stated_in):
        specification = specify(
            config,
            version=version,
            scalars=scalar_names([*inputs, *outputs]),
            inline=threads == 1 and not options.parallel and not any(providers.values()),
            load_seconds=time.monotonic() - started,
            labels=read_labels(source.path, config),
        )
    return Loaded(specification, sessions.open(places, threads), threads)


def _placed(config: ModelConfig, runtime: Runtime) -> ModelConfig:
    gpus = runtime.gpus()
    config = fill_instance_groups(config, gpus)
    check_instance_groups(config, gpus, why_none="" if gpus else runtime.why_no_gpu())
    return config


def _places(config: ModelConfig) -> Iterator[_Place]:
    """The place of each instance"""
    for group in config.instance_group:
        on_gpu = group.kind == ModelInstanceGroup.KIND_GPU
        for place in group.gpus if on_gpu else [None]:
            yield from [place] * group.count


def _own_threads(options: SessionOptions, runtime: Runtime) -> bool:
    """Whether the configuration gives an instance more than the thread that calls it"""
    return runtime.global_threads is None and (options.intra_op_threads > 1 or options.parallel)


class _Sessions:
    """The sessions of one version, as many as its instances need"""

    def __init__(
        self,
        path: Path,
        options: SessionOptions,
        providers: Mapping[_Place, tuple[Provider, ...]],
        *,
        own_threads: bool,
    ) -> None:
        self._path = path
        self._options = options
        self._providers = providers
        self._own_threads = own_threads
        self._probe: tuple[_Place, int, kushi_native.OnnxModel] | None = None

    def probe(self, place: _Place) -> kushi_native.OnnxModel:
        """A session to look at the model; it serves as well, unless that one is to be another"""
        threads = self._options.intra_op_threads or 1
        model = self._session(replace(self._options, profile=None), place, threads, instance=0)
        self._probe = (place, threads, model)
        return model

    def open(self, places: Sequence[_Place], threads: int) -> Sequence[kushi_native.OnnxModel]:
        """That of each instance, or one for all"""
        sessions: list[kushi_native.OnnxModel] = []
        shared: kushi_native.OnnxModel | None = None
        for instance, place in enumerate(places):
            alone = self._own_threads or bool(self._providers[place])
            count = threads if not self._providers[place] else self._options.intra_op_threads or 1
            model = shared if shared and not alone else self._take(place, count, instance)
            shared = shared if alone else model
            sessions.append(model)
        self._probe = None
        return sessions[:1] if all(session is sessions[0] for session in sessions) else sessions

    def _take(self, place: _Place, threads: int, instance: int) -> kushi_native.OnnxModel:
        if self._probe and self._probe[:2] == (place, threads) and self._options.profile is None:
            model, self._probe = self._probe[2], None
            return model
        return self._session(self._options, place, threads, instance)

    def _session(self, options: SessionOptions, place: _Place, threads: int, instance: int) -> kushi_native.OnnxModel:
        providers = self._providers[place]
        if any(provider.accelerator == "tensorrt" for provider in providers):
            cuda.preload_tensorrt()
        elif place is not None:
            cuda.preload()
        return options.still_to_compile().at(place, providers, threads=threads, instance=instance).open(self._path)


def _tensors(declared: list[tuple[str, str, list[int]]]) -> list[TensorInfo]:
    return [TensorInfo(name, datatype, tuple(dims)) for name, datatype, dims in declared]


def _threads(model: kushi_native.OnnxModel, config: ModelConfig, inputs: Sequence[TensorInfo]) -> int:
    cores, instances = usable_cores(), instances_of(config)
    measured = _measure(model, config, inputs) if cores // instances > 1 else None
    return intra_op_threads(0, measured, instances, cores)


def _measure(model: kushi_native.OnnxModel, config: ModelConfig, inputs: Sequence[TensorInfo]) -> float | None:
    """Seconds of one run on a single row of zeros, or nothing where the model refuses such an input"""
    for size in _VARIABLE_SIZES:
        try:
            return model.measure(_example_shapes(config, inputs, size), _MEASURED_RUNS)
        except EngineFailed as error:
            _LOG.debug("'%s' cannot be measured with %d for variable dimensions: %s", config.name, size, error)
    return None


def _example_shapes(config: ModelConfig, inputs: Sequence[TensorInfo], size: int) -> dict[str, list[int]]:
    """A shape for each input that the model requires: one row, and `size` for every dimension that may vary"""
    stated = {t.name: t.reshape.shape if t.HasField("reshape") else t.dims for t in config.input}
    batch = [1] if config.max_batch_size > 0 else []
    return {
        info.name: [*batch, *(dim if dim > 0 else size for dim in stated[info.name])] if info.dims else []
        for info in inputs
    }
