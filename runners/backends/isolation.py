"""
Models whose framework runs in processes of their own, and never in this one: the side of the server.

One process opens the file and says what it found; it is there for nothing else. Then each instance is a worker as that
of a Python model, whose class is `isolated.IsolatedModel`.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..errors import about
from ..repository.layout import ModelSource
from ..repository.messages import ModelConfig
from .device_limits import NO_LIMITS, DeviceLimits
from .fitting import Fitted
from .isolation_messages import Order, read_fitted
from .native import NativeModel
from .thread_variables import thread_variables
from .worker_models import Workers, of_this_program, process_limits

__all__ = ["fit"]

_FILE = Path(__file__).with_name("isolated_entry.py")
_START_SECONDS = 1800.0
"""Weights may be large. So long a load may take, unless the server says otherwise"""


def fit(
    source: ModelSource,
    config: ModelConfig,
    version: int,
    *,
    auto_complete: bool,
    settings: Mapping[str, str],
    limits: DeviceLimits = NO_LIMITS,
) -> Fitted:
    """As `fitting.fit`, in another process; sessions are workers"""
    with about(source.stated_in):
        of_processes = process_limits(config)
    workers = replace(
        of_this_program(_FILE, source, _START_SECONDS),
        version_directory=Path(os.path.abspath(source.versions[version])),  # noqa: PTH100 - as the model's
        limits=of_processes,
    )
    order = Order(source, config, version, settings, limits, auto_complete=auto_complete)
    with about(source.path):
        answer = workers.complete(f"{config.name}_open", json.dumps(order.to_plain()))
    fitted = read_fitted(json.loads(answer), order)
    bound = replace(fitted.bound, sessions=partial(_sessions, workers, fitted, order))
    return replace(fitted, bound=bound)


def _sessions(workers: Workers, fitted: Fitted, first: Order, threads: int) -> list[NativeModel]:
    model = fitted.model
    order = replace(first, config=model.config, auto_complete=False)
    shared = {"isolated": json.dumps(order.to_plain()), "threads": str(threads)}
    workers = replace(
        workers,
        environment=thread_variables(threads),
        arguments=lambda number: {**shared, "instance": str(number)},
    )
    return [*workers.models(model, model.config)]
