"""Writes a plan of TensorRT for RTX. Nothing here executes one, so it is not compared with the original"""

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ...backends.tensorrt.recipe import Recipe
from .. import WrittenForRtx
from ..halves import halved
from .building import build

__all__ = ["export_rtx_plan"]

_LOG = logging.getLogger(__name__)


def export_rtx_plan(
    source: Path, target: Path, recipe: Recipe, *, halves: bool, capabilities: Sequence[str]
) -> WrittenForRtx:
    """What is written"""
    with tempfile.TemporaryDirectory(prefix="kushi-plan-") as scratch:
        built_of = halved(source, Path(scratch)) if halves else source
        _LOG.info("building a plan of TensorRT for RTX")
        version, seconds = build(built_of, target, recipe, capabilities, _LOG.info)
    return WrittenForRtx(target, target.stat().st_size, seconds, version)
