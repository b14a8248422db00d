"""What the forms of a model are asked: rows of a file, or random numbers"""

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from .errors import InvalidInput, KushiError, Unsupported
from .repository.files import check_file, open_file
from .repository.tensors import fits, shape_text
from .zip_files import opened_zip

__all__ = ["NUMBERS", "VARYING", "Row", "Samples", "draw", "read", "read_arrays", "rows_of"]

# of what is encrypted, damaged, or of a shape that no memory holds
_NO_ARRAYS = (ValueError, EOFError, TypeError, RuntimeError, MemoryError, OverflowError)
_ZIP = b"PK\3\4"
_DRAWN_ROWS = 64
_MOST_ROWS = 512
"""Of a file: more make no result clearer"""
_MOST_BYTES = 1024 * 1024 * 1024
"""Of the arrays of a file, as they are unpacked"""
VARYING = (16, 1)
"""How large a dimension may be that may have any size: the first that the model takes"""
_SEED = 0
NUMBERS: Mapping[str, type[np.generic]] = {
    "BOOL": np.bool_,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    **{f"{kind}{bits}": np.dtype(f"{kind.lower()}{bits}").type for kind in ("INT", "UINT") for bits in (8, 16, 32, 64)},
}

Row = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Samples:
    """Values for all inputs, one request after the other"""

    rows: Sequence[Row]
    """Each with a batch dimension where the model has batches: of 1, or of as many rows as were asked for"""
    drawn: bool


def draw(
    metadata: Mapping[str, Any],
    *,
    batching: bool,
    rows: int = 1,
    varying: int = VARYING[0],
    most_bytes: int = _MOST_BYTES,
) -> Samples:
    """
    Random numbers for the inputs that the metadata of a model says; `rows` of a batch go together. `varying`: the size
    of dimensions that have none. As many requests as have `most_bytes` together
    """
    shapes = [_shape(tensor, batching=batching, rows=rows, varying=varying) for tensor in metadata["inputs"]]
    sizes = zip(metadata["inputs"], shapes, strict=True)
    size = sum(math.prod(shape) * np.dtype(_type(tensor)).itemsize for tensor, shape in sizes)
    if size > most_bytes:
        raise Unsupported(f"a request has {size} bytes, of which at most {most_bytes} are drawn")
    random = np.random.default_rng(_SEED)
    requests = min(-(-_DRAWN_ROWS // rows), most_bytes // max(1, size))
    return Samples(
        [_drawn(metadata, random, batching=batching, rows=rows, varying=varying) for _ in range(requests)], drawn=True
    )


def read(path: Path, metadata: Mapping[str, Any], *, batching: bool, rows: int = 1) -> Samples:
    """The rows of an .npz file; `rows` of a batch go together, and where the last are fewer, some are there twice"""
    return rows_of(read_arrays(path), path, metadata, batching=batching, rows=rows)


def read_arrays(path: Path, *, within: Path | None = None) -> Mapping[str, NDArray[Any]]:
    """The arrays of an .npz file, which lies below `within`"""
    try:
        check_file(path)
        # NumPy leaves a file open that is none of its own
        with open_file(path, within=within) as file:
            with opened_zip(file, f"samples '{path}'") as archive:
                unpacked = sum(one.file_size for one in archive.infolist())
            if unpacked > _MOST_BYTES:
                raise InvalidInput(
                    f"samples '{path}': its arrays have {unpacked} bytes, expected at most {_MOST_BYTES}: leave out "
                    "some rows"
                )
            file.seek(0)
            # NumPy takes it for what its first bytes say, and Python for what its last ones say
            if file.read(len(_ZIP)) != _ZIP:
                raise InvalidInput(f"samples '{path}': expected an .npz file: it does not begin as one")
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                found = dict(arrays)
    except KushiError:
        raise
    except (*_NO_ARRAYS, OSError, BadZipFile, zlib.error) as error:
        raise InvalidInput(f"samples '{path}': expected an .npz file: {error}") from error
    # of a member that is no array NumPy gives the bytes
    if no_array := [name for name, one in found.items() if not isinstance(one, np.ndarray)]:
        raise InvalidInput(f"samples '{path}': expected an .npz file: '{no_array[0]}' is no array")
    return found


def rows_of(
    arrays: Mapping[str, NDArray[Any]], path: Path, metadata: Mapping[str, Any], *, batching: bool, rows: int = 1
) -> Samples:
    """What a model with this metadata is asked of the arrays in `path`"""
    inputs = {tensor["name"]: tensor for tensor in metadata["inputs"]}
    if set(arrays) != set(inputs):
        have, want = ", ".join(sorted(arrays)), ", ".join(sorted(inputs))
        raise InvalidInput(f"samples '{path}': expected arrays by the names of the inputs, {want}, got {have}")
    for name, array in arrays.items():
        wanted = _type(inputs[name])
        if array.dtype != wanted:
            raise InvalidInput(f"samples '{path}': '{name}' is {array.dtype}, the model takes {np.dtype(wanted)}")
    if not batching and all(array.size and fits(array.shape, _dims(inputs[name])) for name, array in arrays.items()):
        # what the model takes at once, whatever its first dimensions count
        return Samples([arrays], drawn=False)
    counts = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if len(set(counts.values())) != 1 or not min(counts.values()):
        raise InvalidInput(
            f"samples '{path}': expected as many rows of each input, at least one, or arrays as the model takes them, "
            f"got {counts}"
        )
    for name, array in arrays.items():
        _check_shape(f"samples '{path}': '{name}'", array.shape[1:], inputs[name]["shape"][1 if batching else 0 :])
    together = rows if batching else 1
    count = min(max(_MOST_ROWS, together), *counts.values())
    if count < together:
        raise InvalidInput(f"samples '{path}': expected at least {together} rows, as the model takes them, got {count}")
    starts = [*range(0, count - together, together), count - together]
    return Samples(
        [
            {name: array[start : start + together] if batching else array[start] for name, array in arrays.items()}
            for start in starts
        ],
        drawn=False,
    )


def _dims(tensor: Mapping[str, Any]) -> list[int]:
    return [int(dim) for dim in tensor["shape"]]


def _check_shape(what: str, row: Sequence[int], wanted: Sequence[int | str]) -> None:
    """Of one row, without the first dimension"""
    dims = [int(dim) for dim in wanted]
    if len(row) != len(dims) or any(dim not in (-1, own) for dim, own in zip(dims, row, strict=True)):
        raise InvalidInput(
            f"{what} has rows of the shape {shape_text(tuple(row))}, the model takes {shape_text(tuple(dims))}; the "
            "first dimension of an array counts its rows"
        )


def _drawn(metadata: Mapping[str, Any], random: np.random.Generator, *, batching: bool, rows: int, varying: int) -> Row:
    row: dict[str, NDArray[Any]] = {}
    for tensor in metadata["inputs"]:
        shape = _shape(tensor, batching=batching, rows=rows, varying=varying)
        dtype = np.dtype(_type(tensor))
        if dtype.kind == "f":
            row[tensor["name"]] = random.standard_normal(shape).astype(dtype)
        else:
            # integers are indices and masks mostly: any model takes these two
            row[tensor["name"]] = random.integers(2, size=shape).astype(dtype)
    return row


def _shape(tensor: Mapping[str, Any], *, batching: bool, rows: int, varying: int) -> list[int]:
    shape = [dim if dim > 0 else varying for dim in _dims(tensor)]
    return [rows, *shape[1:]] if batching else shape


def _type(tensor: Mapping[str, Any]) -> type[np.generic]:
    if tensor["datatype"] not in NUMBERS:
        raise Unsupported(f"input '{tensor['name']}' is of type {tensor['datatype']}, which no form is compared for")
    return NUMBERS[tensor["datatype"]]
