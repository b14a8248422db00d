"""A backend that another package brings, whose models do what their requests say, good or bad."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["install", "put"]

_BACKEND: Final = """
import json
import logging
import os
import signal
import time

import numpy as np
from kushi_native import PythonModel

from runners import ConfigInvalid, InvalidInput
from runners.backends import Backend, Bound, Descriptor, ModelFailed, Opened, Prepared, TensorInfo, complete

DESCRIPTOR = Descriptor(name="odd", loads="kushi_odd:OddBackend", kinds=(("odd_text", "model.odd"),))
_INPUTS, _OUTPUTS = [TensorInfo("WHAT", "BYTES", (-1, 1))], [TensorInfo("SAID", "BYTES", (-1, 1))]


class OddBackend(Backend):
    def prepare(self, model):
        return Prepared(Odd)


class Odd(Opened):
    def __init__(self, path):
        self.told = path.read_text()
        if self.told == "dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.told == "refuses":
            raise ConfigInvalid(f"'{path}' is too odd")
        if self.told == "breaks":
            raise ZeroDivisionError("by nothing")
        if self.told == "waits":
            print("it waits", flush=True)
            time.sleep(600)
        if self.told == "warns":
            logging.getLogger("kushi_odd").warning("it is odd")

    def complete(self, config, default_max_batch_size):
        return complete(config, _INPUTS, _OUTPUTS, default_max_batch_size)

    def bind(self, config):
        sums = self.told in ("sums", "never sums")
        tensors = {} if sums else {"inputs": _INPUTS, "outputs": _OUTPUTS}
        return Bound(self.sessions, threads=lambda: 3, **tensors)

    def sessions(self, threads):
        if self.told == "never starts":
            print("it waits", flush=True)
            time.sleep(600)
        return [PythonModel(Sums(self.told) if "sums" in self.told else Says())]


class Sums:
    concurrent = True

    def __init__(self, told):
        self.told = told

    def execute(self, inputs, wanted):
        if self.told == "never sums":
            print("it waits", flush=True)
            time.sleep(600)
        given = [array for array in inputs if array is not None]
        return [sum(array.astype(np.float32) for array in given)]


class Says:
    concurrent = True
    keeps_state = False
    takes_parameters = True

    def __init__(self):
        self.batches = 0

    def execute(self, inputs, wanted, parameters):
        self.batches += 1
        said = []
        for count, given in parameters:
            for what in inputs[0][len(said) : len(said) + count, 0]:
                said.append([self.say(what.decode(), given, len(inputs[0]))])
        return [said]

    def say(self, what, parameters, rows):
        match what.split():
            case ["process"]:
                return str(os.getpid())
            case ["rows"]:
                return str(rows)
            case ["batches"]:
                return str(self.batches)
            case ["variable", name]:
                return os.environ.get(name, "")
            case ["parameters"]:
                return json.dumps(parameters)
            case ["raise"]:
                raise ValueError("no such thing")
            case ["refuse"]:
                raise InvalidInput("expected another word")
            case ["fail"]:
                raise ModelFailed("the device is gone")
            case ["segfault"]:
                print("the last words", flush=True)
                os.kill(os.getpid(), signal.SIGSEGV)
            case ["hang"]:
                print("it hangs", flush=True)
                time.sleep(600)
        return what.upper()
"""


def install(site: Path) -> None:
    """The package in a directory that is to be among those of `sys.path`."""
    (site / "kushi_odd.py").write_text(_BACKEND, encoding="utf-8")
    about = site / "kushi_odd-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: kushi-odd\nVersion: 1\n", encoding="utf-8")
    (about / "entry_points.txt").write_text("[kushi.backends]\nodd = kushi_odd:DESCRIPTOR\n", encoding="utf-8")


def put(repository: Path, name: str, told: str = "", text: str = "") -> None:
    """A model whose file has this text; what `config.pbtxt` leaves out it says by itself."""
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.odd").write_text(told, encoding="utf-8")
    (repository / name / "config.pbtxt").write_text(f'backend: "odd" {text}', encoding="utf-8")
