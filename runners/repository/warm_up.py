"""
Warm-up: the samples of `model_warmup` in config.pbtxt, made ready to be executed.

Every instance executes each of them before the version takes its first request. The texts are Triton's. Whether the
inputs are those of the model is checked where requests are.
"""

import io
import os
import random
from pathlib import Path
from typing import NamedTuple

from ..errors import ConfigInvalid
from .files import is_within, read_file
from .messages import DataType, ModelConfig, ModelWarmup
from .tensors import BYTES_OF, protocol_type

__all__ = ["WarmUpInput", "WarmUpSample", "warm_up_samples"]

_MOST_BYTES = 1024 * 1024 * 1024
_MOST_COUNTED = 2**63 - 1
_MOST_OF_A_MODEL = 4 * 1024 * 1024 * 1024
"""Over all samples, each with all rows of its batch"""
_MOST_TEXTS = 16 * 1024 * 1024
"""An empty one has four bytes here, and eight times as many in a model"""
_PIECE_BYTES = 1024 * 1024
"""Of random bytes: nobody else runs Python while one is drawn, which takes milliseconds"""
_ZERO_OR_ONE = bytes(value & 1 for value in range(256))


class WarmUpInput(NamedTuple):
    """One input of each request of a sample"""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes


class WarmUpSample(NamedTuple):
    """A batch of `batch_size` requests of one row each, to be executed so many times"""

    name: str
    batch_size: int
    times: int
    inputs: tuple[WarmUpInput, ...]


def warm_up_samples(directory: Path, config: ModelConfig) -> tuple[WarmUpSample, ...]:
    """The samples of a model in this directory; one with a batch of 0 is left out"""
    samples = [sample for sample in config.model_warmup if sample.batch_size > 0]
    # before any of it is made
    _check_whole(
        config.name,
        sum(
            sample.batch_size * _size(sample.name, name, given)
            for sample in samples
            for name, given in sample.inputs.items()
        ),
    )
    made, taken = [], 0
    for sample in samples:
        inputs = []
        for name, given in sorted(sample.inputs.items()):
            inputs.append(_input(directory, config, sample.name, name, given))
            # texts of files are as long as the files
            taken += sample.batch_size * len(inputs[-1].data)
            _check_whole(config.name, taken)
        made.append(WarmUpSample(sample.name, sample.batch_size, max(1, sample.count), tuple(inputs)))
    return tuple(made)


def _check_whole(model: str, size: int) -> None:
    if size > _MOST_OF_A_MODEL:
        raise ConfigInvalid(
            f"the warmup samples of model '{model}' have {size} bytes, with all rows of their batches, "
            f"expected at most {_MOST_OF_A_MODEL}"
        )


def _product(numbers: tuple[int, ...]) -> int:
    """Or any number above the largest one that is counted: a product of many has no end"""
    product = 1
    for number in () if 0 in numbers else numbers:
        product *= number
        if product > _MOST_COUNTED:
            return product
    return 0 if 0 in numbers else product


def _size(sample: str, name: str, given: ModelWarmup.Input) -> int:
    """In bytes, of one row"""
    if given.data_type == DataType.Value("TYPE_INVALID"):
        raise ConfigInvalid(f"warmup sample '{sample}': input '{name}' must specify 'data_type'")
    if any(dim < 0 for dim in given.dims):
        raise ConfigInvalid(f"warmup setting expects all variable-size dimensions are specified for input '{name}'")
    datatype = protocol_type(given.data_type)
    size = _product((BYTES_OF[datatype], *given.dims))
    if datatype == "BYTES" and size > _MOST_TEXTS * BYTES_OF[datatype]:
        raise ConfigInvalid(
            f"warmup sample '{sample}': input '{name}' has more texts than {_MOST_TEXTS}, the most that a sample has"
        )
    if size > _MOST_BYTES:
        more = "more than " if size > _MOST_COUNTED else ""
        size = min(size, _MOST_COUNTED)
        raise ConfigInvalid(
            f"warmup sample '{sample}': input '{name}' has {more}{size} bytes, expected at most {_MOST_BYTES}"
        )
    return size


def _input(directory: Path, config: ModelConfig, sample: str, name: str, given: ModelWarmup.Input) -> WarmUpInput:
    datatype, size = protocol_type(given.data_type), _size(sample, name, given)
    match given.WhichOneof("input_data_type"):
        case "input_data_file":
            data = _content(directory / "warmup", sample, name, given.input_data_file)
        case "random_data" if datatype == "BOOL":
            data = _random(sample, size, _ZERO_OR_ONE)
        case "random_data" if datatype != "BYTES":
            data = _random(sample, size)
        case "zero_data" | "random_data":
            # texts are empty ones, since random bytes would be no lengths
            data = bytes(size)
        case _:
            raise ConfigInvalid(f"warmup setting expects input '{name}' to have input_data_type set")
    if datatype != "BYTES":
        if len(data) < size:
            raise ConfigInvalid(
                f"warmup setting expects {size} bytes, but the data provided from {given.input_data_file} "
                f"only has {len(data)} bytes"
            )
        data = data[:size]
    batch = (1,) if config.max_batch_size > 0 else ()
    return WarmUpInput(name, datatype, (*batch, *given.dims), data)


def _random(seed: str, size: int, becomes: bytes | None = None) -> bytes:
    """The same bytes at each load; `becomes` says for each of the 256 bytes which one stands in its place"""
    source = random.Random(seed)  # noqa: S311 - nothing is kept secret by it
    # its value is no copy
    drawn = io.BytesIO()
    while left := size - drawn.tell():
        drawn.write(source.randbytes(min(left, _PIECE_BYTES)).translate(becomes))
    return drawn.getvalue()


def _content(directory: Path, sample: str, name: str, filename: str) -> bytes:
    # a leading slash does not make it another root
    path = Path(f"{directory}/{filename.removeprefix('/')}")
    if not is_within(path, directory):
        raise ConfigInvalid(
            f"warmup sample '{sample}': file path '{path}' for input '{name}' is outside directory '{directory}'"
        )
    try:
        return read_file(path, "warm-up file", within=directory)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ConfigInvalid(f"failed to open text file for read {path}: {reason}") from None
