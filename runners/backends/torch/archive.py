"""
What a PyTorch file is, found out from its table of contents before PyTorch opens it.

A TorchScript archive and an exported program are data and operators. Everything else that PyTorch writes is, or holds,
a Python pickle, which runs any code when it is opened, or machine code: that is refused, with what to do instead.
"""

import json
import zipfile
import zlib
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from ...errors import ConfigInvalid, Unsupported
from .operators import check_program

__all__ = ["Format", "inspect", "sample_inputs"]

_SAVE = "save it as torch.jit.script(model).save(...) or torch.export.save(torch.export.export(model, inputs), ...)"
_AGAIN = "load it with the PyTorch that wrote it and save it again with torch.export.save"
_SAMPLES = "data/sample_inputs/model.pt"
_VERSIONS = {"version", ".data/version"}
_MOST_JSON_BYTES = 64 * 1024 * 1024
"""Of one record: what it states is a graph, weights are in others"""
_MOST_INFLATED_BYTES = 64 * 1024 * 1024
"""All compressed records together: PyTorch compresses code alone"""
_DAMAGE = (EOFError, OSError, RuntimeError, zipfile.BadZipFile, zlib.error)
_CONFIGS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")


class Format(Enum):
    """What can be loaded"""

    SCRIPT = "a TorchScript archive"
    EXPORTED = "an exported program"


def inspect(path: Path) -> Format:
    """The format of the file at `path`, read from end to end and checked as far as it can be without PyTorch"""
    try:
        with zipfile.ZipFile(path) as archive:
            content = _Content(path, archive)
            content.check_sizes()
            found = content.format()
            content.check_sums()
            return found
    except zipfile.BadZipFile:
        kind = "a Python pickle" if _begins_as_pickle(path) else "no PyTorch archive"
        raise ConfigInvalid(
            f"'{path}' is {kind}, expected a TorchScript archive or an exported program: {_SAVE}"
        ) from None


def sample_inputs(path: Path) -> bytes:
    """The inputs that an exported program was made with, as PyTorch wrote them"""
    with zipfile.ZipFile(path) as archive:
        content = _Content(path, archive)
        content.check_sizes()
        return content.read(_SAMPLES) or b""


def _begins_as_pickle(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(1) == b"\x80"


class _Content:
    """An archive whose records lie in one directory, of any name"""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path = path
        self._archive = archive
        self._records = {name.partition("/")[2]: name for name in archive.namelist()}

    def read(self, record: str) -> bytes | None:
        if record not in self._records:
            return None
        try:
            return self._archive.read(self._records[record])
        except _DAMAGE as error:
            raise self._damaged(str(error)) from None

    def check_sizes(self) -> None:
        """What comes out of the file may not be much more than what is in it"""
        records = self._archive.infolist()
        if sum(record.compress_size for record in records) > self._path.stat().st_size:
            raise self._damaged("its records overlap")
        inflated = sum(record.file_size for record in records if record.compress_type != zipfile.ZIP_STORED)
        if inflated > _MOST_INFLATED_BYTES:
            raise ConfigInvalid(
                f"'{self._path}' has compressed records that hold {inflated} bytes, at most {_MOST_INFLATED_BYTES} are "
                "unpacked: PyTorch itself compresses code alone"
            )

    def check_sums(self) -> None:
        """PyTorch would take weights as they come"""
        try:
            wrong = self._archive.testzip()
        except _DAMAGE as error:
            raise self._damaged(str(error)) from None
        if wrong is not None:
            raise self._damaged(f"the checksum of its record '{wrong}' is another one")

    def _damaged(self, reason: str) -> ConfigInvalid:
        return ConfigInvalid(f"'{self._path}' is damaged: {reason}")

    def format(self) -> Format:
        if "serialized_exported_program.json" in self._archive.namelist():
            raise Unsupported(f"'{self._path}' has the form of PyTorch before 2.8: {_AGAIN}")
        self._check_names()
        if any(record.startswith("data/aotinductor/") for record in self._records):
            raise Unsupported(
                f"'{self._path}' is a package of AOTInductor, machine code that checks nothing, which is not supported "
                "by this version: save the exported program itself with torch.export.save"
            )
        if self.read("archive_format") == b"pt2":
            self._check_exported()
            return Format.EXPORTED
        # PyTorch keeps the version of the format in one of two places, by that version
        if {"constants.pkl", "data.pkl"} <= self._records.keys() and _VERSIONS & self._records.keys():
            return Format.SCRIPT
        if "data.pkl" in self._records:
            raise ConfigInvalid(
                f"'{self._path}' was written by torch.save: a Python pickle, which can run any code when it is opened, "
                f"and which is not loaded here. Where the model is at hand, {_SAVE}"
            )
        raise ConfigInvalid(
            f"'{self._path}' is no PyTorch archive, expected TorchScript or an exported program: {_SAVE}"
        )

    def _check_names(self) -> None:
        """What is checked here must be what PyTorch reads, which looks names up in the first folder, in any case"""
        names = self._archive.namelist()
        folders = {name.partition("/")[0] for name in names}
        if len(folders) > 1 or len({name.lower() for name in names}) < len(names):
            raise ConfigInvalid(f"'{self._path}' has records of the same name, or in several folders: {_SAVE}")

    def _check_exported(self) -> None:
        programs = [record for record in self._records if record.startswith("models/")]
        if programs != ["models/model.json"]:
            raise ConfigInvalid(
                f"'{self._path}' holds {len(programs)} programs, expected one as torch.export.save writes it"
            )
        for record in _CONFIGS:
            config = self._json(record)
            entries = config.get("config") if isinstance(config, Mapping) else None
            if not isinstance(entries, Mapping):
                raise Unsupported(f"'{self._path}' has the form of PyTorch before 2.9: {_AGAIN}")
            for name, entry in entries.items():
                self._check_payload(name, entry)
        check_program(self._json("models/model.json"), self._path)

    def _check_payload(self, name: str, entry: object) -> None:
        said = entry if isinstance(entry, Mapping) else {}
        plain = said.get("use_pickle") is False and str(said.get("path_name")).startswith(("weight_", "tensor_"))
        if not plain:
            raise Unsupported(
                f"'{self._path}' holds '{name}' as a Python object, which is not loaded here: expected plain tensors"
            )

    def _json(self, record: str) -> object:
        if record in self._records:
            size = self._archive.getinfo(self._records[record]).file_size
            if size > _MOST_JSON_BYTES:
                raise self._damaged(f"{record} has {size} bytes, at most {_MOST_JSON_BYTES} are read")
        text = self.read(record)
        try:
            content: object = None if text is None else json.loads(text)
        except RecursionError:
            raise self._damaged(f"{record} is nested too deeply") from None
        except ValueError as error:
            raise self._damaged(f"{record}: {error}") from None
        return content
