"""Names of a package that are loaded when a program asks for them, since what they stand on takes time"""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

__all__ = ["on_demand"]


def on_demand(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], object]:
    """The `__getattr__` of `package`, some of whose names are those of modules"""
    module_of = {name: module for module, names in modules.items() for name in names}

    def load(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found: object = getattr(import_module(module_of[name], package), name)
        setattr(sys.modules[package], name, found)
        return found

    return load
