"""
Descriptor: all that the rest of the package knows about a backend before a model asks for it.

It is data. The module that has it imports neither the framework nor native code: the help of a command and the checks
of a configuration read it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from .values import Setting

__all__ = ["Descriptor"]


def _nothing(_settings: Mapping[str, str]) -> None:
    """Settings that need no check beside that of each by itself"""


@dataclass(frozen=True)
class Descriptor:
    """
    One value of `backend` in config.pbtxt.

    name: that value.
    loads: the class that loads its models, a `Backend`, as "module:Class"; imported when a model asks for it.
    kinds: its platforms, each with the default name of the model file, in the order in which they are looked for. The
        first platform is the one where nothing is said; "" where models have none.
    files_of: parameters whose value says which file is the default, as `model_type` of forests: by the name of one, the
        files by its values. Without it the first of all these files that is there.
    order: where in the order of all backends its platforms and files are looked for; of two with one number the name
        decides. Triton's own backends have numbers below 100.
    bare_suffixes: of files that say all that a configuration would, and can be served without one.
    cpu_instances: how many instances there are on the CPU, where nothing is said.
    parameters: those of config.pbtxt that it supports; others are kept for clients, and with `any_parameter`
        they mean something to the backend, so that none is taken for a mistake.
    refused: parameters that it knows and does not take, with the reason, a sentence after "it".
    fields: those of config.pbtxt that it supports beside the ones that all backends do.
    settings: what --backend-config may say of it; `check_settings` raises for those that do not go together.
    install: what brings its framework, as pip calls it.
    executed_by: an object of Python's in the process of the server, which `kushi.isolate` moves to processes; such an
        object in processes of its own in any case; processes of the backend's own; or native code of the server.
    code_suffix: of files that are code of the user's, which --reload-python looks at; "" where there are none.
    reads_data: whether its files are read as data, and nothing in them can run as code of theirs.
    code: those of its parameters that name code, or a program that runs it.
    packages: those of PyPI that bring what executes its models.
    apart: whether the model is handed each request of a batch by itself, so that their shapes may differ.
    backend_file: a file of a directory NAME that makes it a backend called NAME, whose models this one executes by that
        file (--backend-directory); "" where there are none.
    program: that file, of such a backend: its models need none of their own.
    alone: the function that opens a model in its runtime alone, as a script of its users would, for self-tests, as
        "module:function"; "" where there is none.
    """

    name: str
    loads: str
    kinds: tuple[tuple[str, str], ...]
    files_of: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    order: int = 100
    bare_suffixes: tuple[str, ...] = ()
    cpu_instances: int = 1
    parameters: tuple[str, ...] = ()
    any_parameter: bool = False
    refused: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    fields: tuple[str, ...] = ()
    settings: Mapping[str, Setting] = field(default_factory=lambda: MappingProxyType({}))
    check_settings: Callable[[Mapping[str, str]], None] = _nothing
    install: str = ""
    executed_by: Literal["Python", "Python in processes", "processes", "native code"] = "Python"
    code_suffix: str = ""
    apart: bool = False
    reads_data: bool = False
    code: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    backend_file: str = ""
    program: Path | None = None
    alone: str = ""

    def __post_init__(self) -> None:
        if not self.name or not self.kinds:
            raise ValueError(f"the descriptor '{self.name}' needs a name, and a platform with a file in kinds")

    @property
    def platforms(self) -> tuple[str, ...]:
        """Its platforms; the first is the default"""
        return tuple(dict.fromkeys(platform for platform, _ in self.kinds))

    @property
    def files(self) -> tuple[str, ...]:
        """The default names of its model files"""
        return tuple(dict.fromkeys(file for _, file in self.kinds))
