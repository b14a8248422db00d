"""
How a version of a model is loaded, whatever its backend: place → open → complete → check → specify.

The backend has its part in `fitting`, which imports it when the first model asks for it: in this process, or where
`kushi.isolate` says so in another one.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ..errors import about
from ..repository.backend_config import NO_SETTINGS
from ..repository.cores import cores_of_instances
from ..repository.discovery import descriptor_of
from ..repository.isolation import check_stays_outside, is_in_processes
from ..repository.labels import read_labels
from ..repository.layout import ModelSource
from ..repository.messages import ModelConfig
from ..repository.specification import Specification, specify
from ..repository.tensors import scalar_names
from ..repository.warm_up import WarmUpSample, warm_up_samples
from . import fitting, isolation
from .device_limits import NO_LIMITS, DeviceLimits
from .isolation_messages import Order
from .native import NativeModel
from .untrusted import try_first

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
    limits: DeviceLimits = NO_LIMITS,
    trial_seconds: float | None = None,
) -> Loaded:
    """
    Opens one version of a model whose configuration is checked but not yet completed. `settings` are those of its
    backend, checked, and `limits` those of the devices of the server. With `trial_seconds` nobody vouches for it: it is
    tried first, for no longer than that, where a fault of it would end this process.
    """
    started = time.monotonic()
    if trial_seconds is not None:
        with about(source.stated_in):
            check_stays_outside(config)
    descriptor = descriptor_of(config.backend)
    elsewhere = is_in_processes(config, descriptor)
    fit = isolation.fit if elsewhere else fitting.fit
    if trial_seconds is not None and not elsewhere and descriptor.executed_by != "processes":
        order = Order(source, config, version, settings, limits, auto_complete=auto_complete)
        fit = partial(fitting.fit, try_first=partial(try_first, order, trial_seconds))
    fitted = fit(source, config, version, auto_complete=auto_complete, settings=settings, limits=limits)
    config, bound, threads = fitted.model.config, fitted.bound, fitted.threads
    with about(source.stated_in):
        specification = specify(
            config,
            version=version,
            scalars=scalar_names([*(bound.inputs or ()), *(bound.outputs or ())]),
            inline=bound.inline and (threads == 1 or bound.short_needs_one_thread),
            load_seconds=time.monotonic() - started,
            cores=cores_of_instances(config),
            labels=read_labels(source.path, config),
        )
        samples = warm_up_samples(source.path, config)
    sessions = bound.sessions(threads)
    if not elsewhere:
        # as in Triton, a model that fills its GPU beyond the limit goes again; what processes take shows later
        limits.check_load(config.name, fitted.model.places)
    return Loaded(specification, config, sessions, threads, samples)
