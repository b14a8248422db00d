"""
The backends: each is a folder here, or a package of somebody else's, with one `Descriptor` and one `Backend`.

Nothing outside of its folder names a backend. `repository/discovery.py` finds the descriptors, and `pipeline` loads
models with what a backend offers for the steps in which they differ. How to write one: docs/backends.md.

What an author imports from here is loaded on demand, since a help reads the descriptors in the folders, too.
"""

from typing import TYPE_CHECKING

from ..on_demand import on_demand

if TYPE_CHECKING:
    from ..repository.complete import complete
    from ..repository.descriptor import Descriptor
    from ..repository.specification import parameter
    from ..repository.tensors import TensorInfo
    from ..repository.values import Setting
    from .python_engine import Later, ModelFailed, PythonEngine
    from .steps import Backend, Bound, NotYet, Opened, Placed, Prepared, Work

__all__ = [
    "Backend",
    "Bound",
    "Descriptor",
    "Later",
    "ModelFailed",
    "NotYet",
    "Opened",
    "Placed",
    "Prepared",
    "PythonEngine",
    "Setting",
    "TensorInfo",
    "Work",
    "complete",
    "parameter",
]

_MODULES = {
    "..repository.complete": ("complete",),
    "..repository.descriptor": ("Descriptor",),
    "..repository.specification": ("parameter",),
    "..repository.tensors": ("TensorInfo",),
    "..repository.values": ("Setting",),
    ".python_engine": ("Later", "ModelFailed", "PythonEngine"),
    ".steps": ("Backend", "Bound", "NotYet", "Opened", "Placed", "Prepared", "Work"),
}
__getattr__ = on_demand(__name__, _MODULES)
