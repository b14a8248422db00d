"""
How a version of a model is loaded, whatever its backend: place → open → complete → check → specify.

The backend is imported here, when the first model asks for it.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name

from ..errors import Unsupported, about
from ..repository.backend_config import NO_SETTINGS
from ..repository.complete import check_against_model, default_max_batch_size
from ..repository.discovery import descriptor_of
from ..repository.labels import read_labels
from ..repository.layout import ModelSource
from ..repository.messages import ModelConfig, ModelInstanceGroup
from ..repository.normalize import fill_defaults, fill_instance_groups
from ..repository.specification import Specification, specify
from ..repository.tensors import scalar_names
from ..repository.validate import check_instance_groups, check_model, check_outputs, check_tensors, check_threads
from ..repository.warm_up import WarmUpSample, warm_up_samples
from .native import NativeModel
from .steps import Backend, Placed

__all__ = ["Loaded", "load"]


@dataclass(frozen=True)
class Loaded:
    """One version, ready to be handed to the core: one session for all instances, or one for each"""

    specification: Specification
    config: ModelConfig
    """Complete, as it is in effect"""
    sessions: Sequence[NativeModel]
    intra_op_threads: int
    warm_up: Sequence[WarmUpSample]
    """What every instance executes before the version takes its first request"""


def load(
    source: ModelSource,
    config: ModelConfig,
    version: int,
    *,
    auto_complete: bool,
    settings: Mapping[str, str] = NO_SETTINGS,
) -> Loaded:
    """
    Opens one version of a model whose configuration is checked but not yet completed. `settings` are those of its
    backend, checked.
    """
    started = time.monotonic()
    backend = _backend(config.backend, settings)
    with about(source.stated_in):
        model = _placed(source, version, config, backend)
        prepared = backend.prepare(model)
        check_threads(model.config, prepared.threads)
        path = backend.locate(source.versions[version], config.default_model_filename)
    opened = prepared.open(path)
    with about(source.stated_in):
        config = model.config
        if auto_complete:
            config = fill_defaults(opened.complete(config, default_max_batch_size(settings)))
        check_model(config, source.name)
        check_tensors(config)
        bound = opened.bind(config)
        if bound.inputs is not None and bound.outputs is not None:
            check_against_model(config, bound.inputs, bound.outputs)
        if not bound.may_be_silent:
            check_outputs(config)
        threads = bound.threads()
        specification = specify(
            config,
            version=version,
            scalars=scalar_names([*(bound.inputs or ()), *(bound.outputs or ())]),
            inline=bound.inline and threads == 1,
            load_seconds=time.monotonic() - started,
            labels=read_labels(source.path, config),
        )
        samples = warm_up_samples(source.path, config)
    return Loaded(specification, config, bound.sessions(threads), threads, samples)


def _backend(name: str, settings: Mapping[str, str]) -> Backend:
    descriptor = descriptor_of(name)
    try:
        kind: type[Backend] = resolve_name(descriptor.loads)
    except ImportError as error:
        install = f": pip install '{descriptor.install}'" if descriptor.install else ""
        raise Unsupported(f"backend '{name}' cannot be loaded: {error}{install}") from error
    return kind(settings)


def _placed(source: ModelSource, version: int, written: ModelConfig, backend: Backend) -> Placed:
    gpus = backend.gpus()
    config = fill_instance_groups(written, gpus)
    check_instance_groups(config, gpus, why_none="" if gpus else backend.why_no_gpu())
    return Placed(source, version, config, tuple(_places(config)))


def _places(config: ModelConfig) -> Iterator[int | None]:
    for group in config.instance_group:
        on_gpu = group.kind == ModelInstanceGroup.KIND_GPU
        for place in group.gpus if on_gpu else [None]:
            yield from [place] * group.count
