"""
The file that the process loads in which a model is asked in its runtime alone.

It belongs to no package there, and finds the one around it by the name of its directory.
"""

from importlib import import_module
from pathlib import Path

__all__ = ["TritonPythonModel"]

_PACKAGE = Path(__file__).parents[1].name

TritonPythonModel = import_module(f"{_PACKAGE}.backends.alone_process").AskedModel
