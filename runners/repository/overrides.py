"""
What a load brings in place of what lies in a repository: a configuration, and files that take the place of the model's
whole directory.

Files are written into a directory of this process's own, which goes with the model. Whoever may load a model with files
of its own, or a configuration, would choose what runs here: what frameworks run as code, and what names it, need leave.
"""

from __future__ import annotations

import json
import os
import shutil
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from tempfile import mkdtemp
from typing import Final, Literal

from google.protobuf import json_format

from ..errors import ConfigInvalid, InvalidInput
from .discovery import default_file, descriptors
from .ensemble import is_ensemble
from .files import MOST_BYTES
from .messages import ModelConfig
from .supported_fields import ALTERNATIVES

__all__ = ["FILE", "NO_OVERRIDES", "Folder", "Leave", "Overrides", "check_leave", "overrides_of", "parse_config"]

FILE: Final = "file:"
"""How the names of files begin in a load"""
Leave = Literal["data", "all", "none"]
_MOST_PARTS: Final = 16


@dataclass(frozen=True)
class Overrides:
    """Of one load"""

    config: str | None = None
    """In JSON"""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """By their paths in the model's directory"""

    def check(self, leave: Leave) -> None:
        """Raises where they cannot be taken, whatever is in them"""
        if not self.files:
            return
        if leave == "none":
            raise ConfigInvalid("loads that bring files are not allowed (--model-load-files=none)")
        if self.config is None:
            raise ConfigInvalid("files take the place of the model's whole directory, so that they need a 'config'")
        for path in self.files:
            _check_path(path)


NO_OVERRIDES: Final = Overrides()


def overrides_of(config: str | None, files: Mapping[str, bytes] | None) -> Overrides:
    """As a program states them, whose names are those of the protocol"""
    if config is not None and not isinstance(config, str):
        raise InvalidInput(f"config is {type(config).__name__}, expected a text of JSON")
    for name, content in (files or {}).items():
        if not name.startswith(FILE):
            raise InvalidInput(f"unrecognized load parameter '{name}'.")
        if not isinstance(content, bytes):
            raise InvalidInput(f"'{name}' is {type(content).__name__}, expected bytes")
    return Overrides(config, {name.removeprefix(FILE): content for name, content in (files or {}).items()})


def parse_config(text: str) -> ModelConfig:
    """The configuration that a load brings"""
    most = MOST_BYTES["configuration"]
    if len(text) > most:
        raise ConfigInvalid(f"Invalid config override: more than {most} characters")
    try:
        stated = json.loads(text)
        if not isinstance(stated, dict):
            raise ConfigInvalid("Invalid config override: expected an object")
        return json_format.ParseDict(stated, ModelConfig())
    except (json_format.ParseError, RecursionError, ValueError) as error:
        raise ConfigInvalid(f"Invalid config override: {error}") from None


class Folder:
    """The directory of a model, with the files that a load brings. It goes when nobody refers to it any more"""

    def __init__(self, model: str, files: Mapping[str, bytes]) -> None:
        if model.startswith("."):
            raise ConfigInvalid(f"a model of files that a load brings cannot be called {model!r}")
        around = mkdtemp(prefix="kushi-load-")
        goes = weakref.finalize(self, shutil.rmtree, around, ignore_errors=True)
        self.path = Path(around, model)
        try:
            self._write(files)
        except BaseException:
            goes()
            raise

    def _write(self, files: Mapping[str, bytes]) -> None:
        self.path.mkdir()
        for path, content in files.items():
            file = self.path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("xb") as written:
                written.write(content)


def check_leave(brought: ModelConfig, own: ModelConfig | None, leave: Leave) -> None:
    """
    Raises where a load brings code, or names some, and may not. `own` is the configuration in the repository, where the
    files are the repository's as well
    """
    if leave == "all":
        return
    descriptor = descriptors().get(brought.backend)
    what = ""
    is_its_own = own is not None and own.backend == brought.backend
    if not is_ensemble(brought) and not (descriptor and descriptor.reads_data) and not is_its_own:
        what = f"for the backend '{brought.backend}'"
    elif (libraries := _libraries(brought)) and libraries != _libraries(own):
        what = "with a library of operators"
    else:
        named = {*chain.from_iterable(one.code for one in descriptors().values()), ALTERNATIVES}
        what = next((f"with the parameter '{one}'" for one in sorted(named) if _differs(one, brought, own)), "")
    if what:
        raise ConfigInvalid(f"what a load brings {what} may run as code: that needs --model-load-files=all")


def _libraries(config: ModelConfig | None) -> list[str]:
    return [*config.model_operations.op_library_filename] if config else []


def _differs(parameter: str, brought: ModelConfig, own: ModelConfig | None) -> bool:
    if parameter not in brought.parameters:
        return False
    text = brought.parameters[parameter].string_value
    return own is None or parameter not in own.parameters or own.parameters[parameter].string_value != text


def _check_path(path: str) -> None:
    parts = path.split("/")
    if len(parts) > _MOST_PARTS or not path.isprintable() or {"", os.curdir, os.pardir} & {*parts}:
        raise ConfigInvalid(
            f"{FILE + path!r}: expected a path inside the model's directory, as '{FILE}1/{default_file()}'"
        )
