"""The conformance suite of the native core, for engines that are written in Python.

The suite is Rust, built as a Python module of its own (``make conformance``). It asks a subject for engines, puts them
behind a real runner, and looks at what comes back. A case that fails raises the panic of its assertion.
"""

from __future__ import annotations

import os
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import TYPE_CHECKING, Final, Protocol

from tests.examples import built

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from runners.backends import PythonEngine

__all__ = ["CASES", "Subject", "Tensor", "run"]

Tensor = tuple[str, str, list[int]]
"""Name, data type and dimensions, -1 for any size and the batch's among them"""


class Subject(Protocol):
    def engine(self, model: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> PythonEngine:
        """The engine of a model of the suite; ``Model`` in testkit/src/conformance.rs says what each computes."""
        ...

    def takes(self, datatype: str) -> bool:
        """Whether the engine has tensors of this type, in any number of dimensions."""
        ...


def _load() -> ModuleType:
    path = os.environ.get("KUSHI_TEST_CONFORMANCE", str(built("kushi_conformance")))
    loader = ExtensionFileLoader("kushi_conformance", path)
    spec = spec_from_loader("kushi_conformance", loader)
    assert spec is not None
    try:
        module = module_from_spec(spec)
    except ImportError as error:
        raise RuntimeError(f"'{path}' cannot be loaded, build it with: make conformance") from error
    loader.exec_module(module)
    return module


_SUITE: Final = _load()

CASES: Final[Sequence[str]] = _SUITE.cases()


def run(case: str, subject: Subject) -> None:
    _SUITE.run(case, subject)
