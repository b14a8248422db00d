"""The user's file, as a module"""

from __future__ import annotations

import importlib.util
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import TritonModelException
from .server import OWNER

if TYPE_CHECKING:
    from .server import Server

__all__ = ["model_class"]


def model_class(path: str, directories: list[str], server: Server) -> Any:
    """
    The class `TritonPythonModel` of a file; what lies in the directories can be imported by it. `server` answers what
    it asks
    """
    # those of the model that was loaded last come first
    sys.path[:] = [*directories, *(known for known in sys.path if known not in directories)]
    file = Path(path)
    spec = importlib.util.spec_from_file_location(file.stem, path)
    if spec is None or spec.loader is None:
        raise TritonModelException(f"'{path}' is no Python file")
    module = importlib.util.module_from_spec(spec)
    setattr(module, OWNER, weakref.ref(server))
    # for what looks a class up by its module, like pickle
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    found = getattr(module, "TritonPythonModel", None)
    if found is None:
        raise TritonModelException(f"'{path}' has no class TritonPythonModel")
    return found
