"""The steps of a load in which the backend has its part: place → open → complete → check. It is imported here"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name

from ..errors import Unsupported, about
from ..repository.advice import check_content
from ..repository.complete import check_against_model, default_max_batch_size
from ..repository.cores import check_cores
from ..repository.discovery import descriptor_of
from ..repository.layout import ModelSource
from ..repository.messages import ModelConfig, ModelInstanceGroup
from ..repository.normalize import fill_defaults, fill_instance_groups
from ..repository.validate import check_instance_groups, check_model, check_outputs, check_tensors, check_threads
from .cores import cores_of_process, warn_of_threads
from .device_limits import NO_LIMITS, DeviceLimits
from .steps import Backend, Bound, Placed
from .weights import check_weights

__all__ = ["Fitted", "TryFirst", "backend_of", "fit"]

TryFirst = Callable[[Path, Sequence[Path]], Callable[[], None]]
"""With the file of a model that is on the CPU, and the files with weights beside it"""


@dataclass(frozen=True)
class Fitted:
    """A version whose file is open and fits its configuration"""

    model: Placed
    """With its configuration complete, as it is in effect"""
    bound: Bound
    threads: int
    """Of each instance"""


def fit(
    source: ModelSource,
    config: ModelConfig,
    version: int,
    *,
    auto_complete: bool,
    settings: Mapping[str, str],
    limits: DeviceLimits = NO_LIMITS,
    try_first: TryFirst | None = None,
) -> Fitted:
    """
    Opens one version of a model whose configuration is checked but not yet completed. `try_first` raises where it would
    end this process
    """
    backend = backend_of(config.backend, settings, limits)
    with about(source.stated_in):
        model = _placed(source, version, config, backend)
    limits.check_load(config.name, model.places)
    with about(source.stated_in):
        prepared = backend.prepare(model)
        check_threads(model.config, prepared.threads)
        warn_of_threads(model.config, prepared.threads)
        descriptor = descriptor_of(config.backend)
        path = descriptor.program or backend.locate(source.versions[version], config.default_model_filename)
        beside = check_weights(path, backend.weights_beside(path))
    # a file of code says by itself what is wrong with it, and those of others may be what they like
    if path.is_file() and not descriptor.code_suffix and descriptor.loads.startswith(f"{__package__}."):
        check_content(path)
    check_unchanged = try_first(path, beside) if try_first and None in model.places else None
    opened = prepared.open(path)
    if check_unchanged:
        check_unchanged()
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
        return Fitted(replace(model, config=config), bound, bound.threads())


def backend_of(name: str, settings: Mapping[str, str], limits: DeviceLimits = NO_LIMITS) -> Backend:
    """The backend that config.pbtxt calls `name`, ready to open models"""
    descriptor = descriptor_of(name)
    try:
        kind: type[Backend] = resolve_name(descriptor.loads)
    except ImportError as error:
        install = f": pip install '{descriptor.install}'" if descriptor.install else ""
        raise Unsupported(f"backend '{name}' cannot be loaded: {error}{install}") from error
    backend = kind(settings)
    backend.limits = limits
    return backend


def _placed(source: ModelSource, version: int, written: ModelConfig, backend: Backend) -> Placed:
    gpus = backend.gpus()
    config = fill_instance_groups(written, gpus)
    why_none = "" if gpus else backend.why_no_gpu()
    instead = "" if backend.places_itself() else backend.instead_of_kind_model()
    check_instance_groups(config, gpus, why_none=why_none, instead_of_kind_model=instead)
    check_cores(config, cores_of_process())
    places, by_themselves = zip(*_places(config), strict=True)
    return Placed(source, version, config, places, by_themselves)


def _places(config: ModelConfig) -> Iterator[tuple[int | None, bool]]:
    """Of each instance, and whether it chooses by itself"""
    for group in config.instance_group:
        on_gpu = group.kind == ModelInstanceGroup.KIND_GPU
        by_itself = group.kind == ModelInstanceGroup.KIND_MODEL
        for place in group.gpus if on_gpu else [None]:
            yield from [(place, by_itself)] * group.count
