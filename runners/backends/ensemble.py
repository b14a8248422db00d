"""How a version of an ensemble is loaded: it has no model file, but the models of its steps, which are loaded before"""

import time
from collections.abc import Mapping

from kushi_native import Ensemble

from ..errors import KushiError, about
from ..repository.ensemble import check_composing, steps_json, with_policy
from ..repository.labels import read_labels
from ..repository.layout import ModelSource
from ..repository.messages import ModelConfig
from ..repository.specification import specify
from ..repository.validate import check_outputs, check_tensors
from .pipeline import Loaded

__all__ = ["load"]


def load(
    source: ModelSource,
    config: ModelConfig,
    version: int,
    models: Mapping[str, Mapping[int, ModelConfig]],
    failures: Mapping[str, KushiError],
) -> Loaded:
    """
    One version of an ensemble whose configuration is checked.

    models: those that are loaded, by version. failures: of others, why they are not.
    """
    started = time.monotonic()
    with about(source.stated_in):
        check_tensors(config)
        check_outputs(config)
        of_steps = check_composing(config, models, failures)
        config = with_policy(config, of_steps)
        specification = specify(
            config,
            version=version,
            scalars=(),
            inline=False,
            load_seconds=time.monotonic() - started,
            labels=read_labels(source.path, config),
        )
    return Loaded(specification, config, [Ensemble(steps_json(config))], intra_op_threads=0, warm_up=())
