"""An opened plan beside the values that decide about runs: its layers, and the memory that it takes"""

from pathlib import Path

from .cuda import gpu
from .library import LOGGER, load_plugins, trt
from .opening import open_plan
from .reading import Details, read_details

__all__ = ["details_of"]


def details_of(path: Path, gpu_number: int, *, runs_code_of_plans: bool = False) -> Details:
    """Opens the plan for it; code inside of it is not run where nobody says so"""
    owner = gpu(gpu_number)
    load_plugins("")
    opened = open_plan(path, owner, runs_code_of_plans=runs_code_of_plans)
    return read_details(opened.engine, trt.LayerInformationFormat.JSON, LOGGER.why)
