"""
In which sizes batches run. cuDNN has a plan for each convolution and each shape, and ONNX Runtime keeps the plan of the
last shape alone: a batch of another size than the one before waits for new plans, longer than it computes. So a model
with convolutions has a session for each of a few sizes on a GPU, and batches are filled up to the next of them.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import kushi_native

from ...errors import ConfigInvalid
from ...repository.messages import ModelConfig
from ...repository.sizes import stated_sizes
from ...repository.tensors import model_dims
from .values import Provider

__all__ = ["BATCH_SIZES", "BatchSizes", "batch_sizes"]

_LOG = logging.getLogger(__name__)

BATCH_SIZES = "kushi.batch_sizes"
_ANY = "any"
_CONVOLUTIONS = ("Conv", "ConvTranspose", "FusedConv", "NhwcConv", "NhwcFusedConv")
_HEAVY_BYTES = 256 << 20
"""Each size has the weights in memory once more: models with more of them have fewer sizes"""
_SEARCH = "cudnn_conv_algo_search"


@dataclass(frozen=True)
class BatchSizes:
    """Those of an instance, in order; none where a session takes batches of any size"""

    sizes: tuple[int, ...] = ()
    stated: bool = False
    """Whether the configuration says so"""
    model: str = ""


def batch_sizes(config: ModelConfig, providers: Sequence[Provider], path: Path) -> BatchSizes:
    """Those of instances with these providers. The configuration is complete"""
    if BATCH_SIZES in config.parameters:
        stated = config.parameters[BATCH_SIZES].string_value.strip() != _ANY
        return BatchSizes(_checked(config), stated, config.name) if stated else BatchSizes()
    if config.max_batch_size < 2 or [provider.accelerator for provider in providers] != ["cuda"]:
        return BatchSizes()
    if not kushi_native.onnx_has_operator(path, _CONVOLUTIONS):
        return BatchSizes()
    options = dict(providers[0].options)
    if why := _why_not(config, options):
        search = "" if _SEARCH in options else f"; '{_SEARCH}' HEURISTIC makes that shorter"
        _LOG.warning("the convolutions of '%s' are planned anew for each other batch: %s%s", config.name, why, search)
        return BatchSizes()
    step = 4 if _weight(path) > _HEAVY_BYTES else 2
    return BatchSizes(_sizes(config.max_batch_size, step), model=config.name)


def _checked(config: ModelConfig) -> tuple[int, ...]:
    sizes, largest = stated_sizes(config, BATCH_SIZES, or_else=f"'{_ANY}', or "), config.max_batch_size
    subject = f"parameter '{BATCH_SIZES}' of model '{config.name}'"
    if not largest:
        raise ConfigInvalid(f"{subject} needs a max_batch_size above 0: the model takes no batches")
    if sizes[-1] > largest:
        raise ConfigInvalid(f"{subject}: expected sizes up to max_batch_size, {largest}, got {sizes[-1]}")
    return tuple(sorted({*sizes, largest}))


def _why_not(config: ModelConfig, options: dict[str, str]) -> str:
    """Why it has no sizes by itself"""
    if not config.HasField("dynamic_batching"):
        # only with it rows of one request are known to mean nothing to another
        return f"it has no dynamic_batching; state '{BATCH_SIZES}' where its rows do not depend on each other"
    if "gpu_mem_limit" in options:
        return f"each size needs memory of its own, and 'gpu_mem_limit' is stated; state '{BATCH_SIZES}', too"
    for kind, tensors in (("input", config.input), ("output", config.output)):
        for tensor in tensors:
            if any(dim < 0 for dim in model_dims(tensor)):
                return f"{kind} '{tensor.name}' has dims {[*tensor.dims]}"
    return ""


def _weight(path: Path) -> int:
    """The bytes of the file, and of those beside it that it names"""
    beside = [path.parent / name for name in kushi_native.onnx_external_files(path)]
    return sum(each.stat().st_size for each in (path, *beside) if each.is_file())


def _sizes(largest: int, step: int) -> tuple[int, ...]:
    """1, and each so many times the one before, up to the largest"""
    sizes = [1]
    while sizes[-1] * step < largest:
        sizes.append(sizes[-1] * step)
    return (*sizes, largest)
