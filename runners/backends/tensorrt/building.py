"""Builds a plan from an ONNX file. Networks are strongly typed: numbers are as exact as those in the file"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import EngineFailed
from .library import LOGGER, trt
from .network import add_profile, parse
from .recipe import Recipe
from .steps import Progress, Steps
from .writing import memory_of, write_file

__all__ = ["Built", "build"]


@dataclass(frozen=True)
class Built:
    """A plan, as the bytes of its file"""

    plan: "trt.IHostMemory"
    seconds: float


def build(source: Path, recipe: Recipe, *, timing_cache: Path | None, progress: Progress) -> Built:
    """On the GPU that the thread has entered; the timing cache is read, and written again with what was added"""
    started = time.monotonic()
    LOGGER.begin()
    try:
        builder = trt.Builder(LOGGER)
    except TypeError as error:
        # how its module says that there is none
        raise EngineFailed(f"TensorRT cannot build here: {LOGGER.why()}") from error
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, LOGGER)
    parse(parser, source, LOGGER.why)
    config = _config(builder, network, recipe)
    cache: Any = config.create_timing_cache(_bytes(timing_cache))
    if not cache or not config.set_timing_cache(cache, ignore_mismatch=False):
        # one of another GPU or version: it is made anew
        config.set_timing_cache(config.create_timing_cache(b""), ignore_mismatch=False)
    monitor = _Monitor(progress)
    config.progress_monitor = monitor
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise EngineFailed(f"TensorRT cannot build a plan of '{source}': {LOGGER.why()}")
    made: Any = config.get_timing_cache()
    if timing_cache and made:
        write_file(timing_cache, memory_of(made.serialize()))
    return Built(plan, time.monotonic() - started)


def _config(builder: "trt.Builder", network: "trt.INetworkDefinition", recipe: Recipe) -> "trt.IBuilderConfig":
    config = builder.create_builder_config()
    add_profile(builder, network, config, recipe, LOGGER.why)
    if recipe.workspace_bytes is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, recipe.workspace_bytes)
    if recipe.optimization_level is not None:
        config.builder_optimization_level = recipe.optimization_level
    if recipe.version_compatible:
        config.set_flag(trt.BuilderFlag.VERSION_COMPATIBLE)
    if recipe.hardware_compatible:
        config.hardware_compatibility_level = trt.HardwareCompatibilityLevel.AMPERE_PLUS
    if not recipe.tf32:
        config.clear_flag(trt.BuilderFlag.TF32)
    # what 'kushi inspect' shows of the layers
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    return config


class _Monitor(Steps, trt.IProgressMonitor):  # type: ignore[misc] # untyped where there are no stubs of it
    def __init__(self, progress: Progress) -> None:
        Steps.__init__(self, progress)
        trt.IProgressMonitor.__init__(self)


def _bytes(path: Path | None) -> bytes:
    return path.read_bytes() if path and path.is_file() else b""
