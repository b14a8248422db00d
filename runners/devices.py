"""The limits of devices that the options of an engine state"""

import logging

from .backends.device_limits import DeviceLimits
from .backends.pinned import PinnedBudget
from .settings import DeviceOptions

__all__ = ["limits_of"]

_LOG = logging.getLogger(__name__)


def limits_of(options: DeviceOptions) -> DeviceLimits:
    """Made once for each engine; says what is stated and has no effect"""
    if options.cuda_memory_pool_bytes:
        _LOG.warning(
            "--cuda-memory-pool-byte-size has no effect: the server has no memory of its own on GPUs, each framework "
            "reserves what its models need; 'gpu_mem_limit' bounds an ONNX model, --model-load-gpu-limit refuses loads"
        )
    return DeviceLimits(PinnedBudget(options.pinned_memory_pool_bytes), dict(options.model_load_gpu_limits))
