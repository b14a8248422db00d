"""Which GPUs the process of a model has: what TensorFlow sees of them, and how it takes their memory"""

from __future__ import annotations

from typing import Any

__all__ = ["take_devices"]

# `tf.config`
_Config = Any


def take_devices(config: _Config, gpu: int | None, *, by_itself: bool) -> str | None:
    """
    Leaves TensorFlow the GPU of that number alone, none where it is None, or all where the model chooses by itself.
    Answers the name of the device that its operations are on, None where TensorFlow decides. It has to be called before
    TensorFlow starts: whatever it sees then it takes into use, and it cannot be changed any more.
    """
    gpus = config.list_physical_devices("GPU")
    seen = gpus if by_itself else [] if gpu is None else [gpus[gpu]]
    config.set_visible_devices(seen, "GPU")
    for device in seen:
        # without it the first process takes all memory of a GPU; all that are seen have to have the same
        config.experimental.set_memory_growth(device, enable=True)
    if by_itself:
        return None
    # those that are seen are counted
    return "/CPU:0" if gpu is None else "/GPU:0"
