"""
The file that the processes of a generative model load.

It belongs to no package there, and finds the one around it by the name of its directory.
"""

from importlib import import_module
from pathlib import Path

__all__ = ["TritonPythonModel"]

_PACKAGE = Path(__file__).parents[2].name

TritonPythonModel = import_module(f"{_PACKAGE}.backends.openvino_genai.tokens").TokenModel
