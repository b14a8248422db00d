"""
What a PyTorch file is, found out from its table of contents before PyTorch opens it.

A TorchScript archive and an exported program are data and operators. Everything else that PyTorch writes is, or holds,
a Python pickle, which runs any code when it is opened, or machine code: that is refused, with what to do instead.
"""

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from enum import Enum
from itertools import islice
from math import prod
from pathlib import Path

from ...bounded_json import read_json
from ...errors import ConfigInvalid, KushiError, Unsupported
from ...zip_files import opened_zip, read_record, wrong_record
from .generated import check_generated
from .operators import check_program

__all__ = ["Format", "inspect", "sample_inputs"]

_SAVE = "save it as torch.jit.script(model).save(...) or torch.export.save(torch.export.export(model, inputs), ...)"
_AGAIN = "load it with the PyTorch that wrote it and save it again with torch.export.save"
_SAMPLES = "data/sample_inputs/model.pt"
_VERSIONS = {"version", ".data/version"}
_MOST_JSON_BYTES = 64 * 1024 * 1024
"""Of one record: what it states is a graph, weights are in others"""
_MOST_FORMAT_BYTES = 1024
"""PyTorch writes three"""
_MOST_SAMPLES_BYTES = 1024 * 1024 * 1024
"""As of the samples of a warm-up: inputs of one call, which PyTorch reads whole"""
_MOST_INFLATED_BYTES = 64 * 1024 * 1024
"""All compressed records together: PyTorch compresses code alone"""
_MOST_JSON_PARTS = 2_000_000
_MOST_JSON_VALUES = 8_000_000
_MOST_JSON_MEMBERS = 1_000_000
"""Nobody else runs Python while names are read, which takes a microsecond each"""
_MOST_SIZES = 64
_LONGEST_SIZE_BITS = 64
_MEMBER = re.compile(rb'"\s*:')
"""Brackets and commas of one record: while it is read, no other model that Python executes goes on"""
# what a damaged table of contents makes Python's reader raise
_DAMAGE = (
    *(EOFError, OSError, RuntimeError, ValueError, LookupError, MemoryError, NotImplementedError),
    *(struct.error, zipfile.BadZipFile, zlib.error),
)
# the end of an archive, and what tells where the end of a large one is, which lies before both
_END = struct.Struct("<4s16sH")
_LOCATOR = struct.Struct("<4sIQI")
_LARGER_END_BYTES = 56
_DIRECTORY = 0x10
"""PyTorch reads nothing of a record with this attribute, and says that it has read it"""
# of an exported program; others are what PyTorch would take for one of these, as a pickle
_RECORDS = re.compile(
    r"data/weights/(weight_\d+|model_weights_config\.json)|data/constants/(tensor_\d+|model_constants_config\.json)"
    r"|data/sample_inputs/model\.pt|models/model\.json|extra/.*"
    r"|archive_format|archive_version|byteorder|version|\.data/(version|serialization_id)"
    r"|\.format_version|\.storage_alignment",
    re.DOTALL,
)
_CONFIGS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")


class Format(Enum):
    """What can be loaded"""

    SCRIPT = "a TorchScript archive"
    EXPORTED = "an exported program"


def inspect(path: Path) -> Format:
    """The format of the file at `path`, read from end to end and checked as far as it can be without PyTorch"""
    try:
        with path.open("rb") as file, opened_zip(file, f"'{path}'") as archive:
            content = _Content(path, archive)
            content.check_places()
            content.check_sizes()
            found = content.format()
            content.check_sums()
            return found
    except KushiError:
        raise
    except zipfile.BadZipFile:
        kind = "a Python pickle" if _begins_as_pickle(path) else "no PyTorch archive"
        raise ConfigInvalid(
            f"'{path}' is {kind}, expected a TorchScript archive or an exported program: {_SAVE}"
        ) from None
    except _DAMAGE as error:
        raise ConfigInvalid(f"'{path}' is damaged: {error}") from None


def sample_inputs(path: Path) -> bytes:
    """The inputs that an exported program was made with, as PyTorch wrote them: an archive by itself"""
    with path.open("rb") as file, opened_zip(file, f"'{path}'") as archive:
        content = _Content(path, archive)
        content.check_sizes()
        samples = content.read(_SAMPLES, _MOST_SAMPLES_BYTES) or b""
    try:
        with opened_zip(io.BytesIO(samples), f"'{path}': {_SAMPLES}") as inner:
            unpacked = sum(record.file_size for record in inner.infolist())
    except _DAMAGE as error:
        raise ConfigInvalid(f"'{path}' is damaged: {_SAMPLES}: {error}") from None
    if unpacked > len(samples) + _MOST_INFLATED_BYTES:
        raise ConfigInvalid(
            f"'{path}' has sample inputs that hold {unpacked} bytes in {len(samples)}: they are not read"
        )
    return samples


def _begins_as_pickle(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(1) == b"\x80"


class _Content:
    """An archive whose records lie in one directory, of any name"""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path = path
        self._archive = archive
        self._records = {name.partition("/")[2]: name for name in archive.namelist()}

    def read(self, record: str, most_bytes: int) -> bytes | None:
        if record not in self._records:
            return None
        size = self._archive.getinfo(self._records[record]).file_size
        if size > most_bytes:
            raise self._damaged(f"{record} has {size} bytes, at most {most_bytes} are read")
        try:
            return read_record(self._archive, self._records[record])
        except _DAMAGE as error:
            raise self._damaged(str(error)) from None

    def check_places(self) -> None:
        """What is checked here must be what PyTorch reads: it takes the table of contents from where its end says"""
        with self._path.open("rb") as file:
            start = file.seek(-_END.size - _LOCATOR.size, io.SEEK_END)
            locator, _, larger_end, _ = _LOCATOR.unpack(file.read(_LOCATOR.size))
            mark, _, comment = _END.unpack(file.read(_END.size))
        records = self._archive.infolist()
        is_elsewhere = locator == b"PK\6\7" and larger_end != start - _LARGER_END_BYTES
        begins_late = bool(records) and min(record.header_offset for record in records) > 0
        if mark != b"PK\5\6" or comment or is_elsewhere or begins_late:
            raise self._damaged("there is something before or behind its records")
        for record in records:
            if record.external_attr & _DIRECTORY or record.filename.endswith("/"):
                raise self._damaged(f"its record '{record.filename}' is called a directory")

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
            wrong = wrong_record(self._archive)
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
        if self.read("archive_format", _MOST_FORMAT_BYTES) == b"pt2":
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
        if other := next((record for record in self._records if not _RECORDS.fullmatch(record)), None):
            raise Unsupported(f"'{self._path}' has a record '{other}', which is not read here: {_AGAIN}")
        for record in _CONFIGS:
            config = self._json(record)
            entries = config.get("config") if isinstance(config, Mapping) else None
            if not isinstance(entries, Mapping):
                raise Unsupported(f"'{self._path}' has the form of PyTorch before 2.9: {_AGAIN}")
            for name, entry in entries.items():
                self._check_payload(name, entry, record.rpartition("/")[0])
        program = self._json("models/model.json")
        check_program(program, self._path)
        check_generated(program, self._path)

    def _check_payload(self, name: str, entry: object, folder: str) -> None:
        said = entry if isinstance(entry, Mapping) else {}
        plain = said.get("use_pickle") is False and str(said.get("path_name")).startswith(("weight_", "tensor_"))
        if not plain:
            raise Unsupported(
                f"'{self._path}' holds '{name}' as a Python object, which is not loaded here: expected plain tensors"
            )
        record = self._records.get(f"{folder}/{said['path_name']}")
        if record is not None and not self._archive.getinfo(record).file_size and _elements(said) > 0:
            # PyTorch would make zeros of it
            raise self._damaged(f"'{name}' has a size and no content")

    def _json(self, record: str) -> object:
        text = self.read(record, _MOST_JSON_BYTES)
        if text and _is_too_long(text):
            raise self._damaged(f"{record} has more parts than a program has")
        try:
            # decoded here: Python would take other codings, too, whose members nobody has counted
            content = None if text is None else read_json(text.decode())
        except RecursionError:
            raise self._damaged(f"{record} is nested too deeply") from None
        except ValueError as error:
            raise self._damaged(f"{record}: {error}") from None
        return content


def _is_too_long(text: bytes) -> bool:
    if text.count(b"[") + text.count(b"{") > _MOST_JSON_PARTS or text.count(b",") > _MOST_JSON_VALUES:
        return True
    return next(islice(_MEMBER.finditer(text), _MOST_JSON_MEMBERS, None), None) is not None


def _elements(entry: Mapping[str, object]) -> int:
    """How many a tensor states; 1 where that cannot be told"""
    said = entry.get("tensor_meta")
    sizes = said.get("sizes") if isinstance(said, Mapping) else None
    found = [size.get("as_int") for size in sizes if isinstance(size, Mapping)] if isinstance(sizes, list) else []
    known = [size for size in found if isinstance(size, int)]
    # long numbers, and many, cost long to multiply
    if len(known) > _MOST_SIZES or any(size.bit_length() > _LONGEST_SIZE_BITS for size in known):
        return 1
    return prod(known)
