"""Builds a plan of TensorRT for RTX, which needs no GPU: its kernels are compiled where it is opened"""

import time
from collections.abc import Sequence
from pathlib import Path

from ...backends.tensorrt.network import add_profile, parse
from ...backends.tensorrt.recipe import Recipe
from ...backends.tensorrt.steps import Progress, Steps
from ...backends.tensorrt.writing import memory_of, write_file
from ...errors import EngineFailed, InvalidInput
from .library import LOGGER, trt, version

__all__ = ["build"]


def build(
    source: Path, target: Path, recipe: Recipe, capabilities: Sequence[str], progress: Progress
) -> tuple[str, float]:
    """The version that it is for, and the seconds that it took"""
    started = time.monotonic()
    LOGGER.begin()
    try:
        builder = trt.Builder(LOGGER)
    except TypeError as error:
        # how its module says that there is none
        raise EngineFailed(f"TensorRT-RTX cannot build here: {LOGGER.why()}") from error
    # it has no other networks
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, LOGGER)
    parse(parser, source, LOGGER.why)
    config = _config(builder, recipe, capabilities)
    add_profile(builder, network, config, recipe, LOGGER.why)
    monitor = _Monitor(progress)
    config.progress_monitor = monitor
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise EngineFailed(f"TensorRT-RTX cannot build a plan of '{source}': {LOGGER.why()}")
    write_file(target, memory_of(plan))
    return version(), time.monotonic() - started


def _config(builder: "trt.Builder", recipe: Recipe, capabilities: Sequence[str]) -> "trt.IBuilderConfig":
    config = builder.create_builder_config()
    if recipe.workspace_bytes is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, recipe.workspace_bytes)
    if recipe.optimization_level is not None:
        config.builder_optimization_level = recipe.optimization_level
    if not recipe.tf32:
        config.clear_flag(trt.BuilderFlag.TF32)
    # what 'kushi inspect' shows of the layers
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    # without any it is for all GPUs from Ampere on
    if capabilities:
        config.num_compute_capabilities = len(capabilities)
    for index, stated in enumerate(capabilities):
        known = trt.ComputeCapability.__members__
        name = f"SM{stated.replace('.', '')}"
        if "." not in stated or name not in known or not config.set_compute_capability(known[name], index):
            those = ", ".join(f"{one[2:-1]}.{one[-1]}" for one in known if one.startswith("SM"))
            raise InvalidInput(f"compute capability '{stated}': TensorRT-RTX {version()} has {those}")
    return config


class _Monitor(Steps, trt.IProgressMonitor):  # type: ignore[misc] # untyped where there are no stubs of it
    def __init__(self, progress: Progress) -> None:
        Steps.__init__(self, progress)
        trt.IProgressMonitor.__init__(self)
