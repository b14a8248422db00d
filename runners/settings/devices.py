"""Devices: what models may take of their memory"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..integers import INT64_MAX
from .definition import Group, setting, stated
from .kinds import Integer
from .per_gpu import Bytes, Fraction, PerGpu

__all__ = ["DeviceOptions"]


@dataclass(frozen=True, kw_only=True)
class DeviceOptions(Group):
    """What models may take of the memory of devices."""

    title = "devices"

    pinned_memory_pool_bytes: int = setting(
        "pinned-memory-pool-byte-size",
        Integer(0, INT64_MAX, "BYTES"),
        "Bytes of host memory that engines on GPUs may pin together for their copies; 0 for none. What is beyond is "
        "copied from ordinary memory.",
        default=256 * 1024 * 1024,
    )
    cuda_memory_pool_bytes: Mapping[int, int] = field(
        default_factory=dict,
        metadata=stated(
            "cuda-memory-pool-byte-size",
            PerGpu(Bytes()),
            "Accepted as tritonserver has it, and without an effect, which the log says: the server has no memory of "
            "its own on GPUs.",
        ),
    )
    model_load_gpu_limits: Mapping[int, float] = field(
        default_factory=dict,
        metadata=stated(
            "model-load-gpu-limit",
            PerGpu(Fraction()),
            "How much of a GPU's memory may be in use, from 0 to 1, where a model is loaded onto it; else the load is "
            "refused.",
        ),
    )
