"""Files of PyTorch that are not what they say, or lie elsewhere."""

from __future__ import annotations

import io
import pickle
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from runners.errors import ConfigInvalid, KushiError, Unsupported
from tests.torch.models import TwoIntoTwo, export, fp32, loaded, model_config, put, save_exported

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Marker:
    """Tells that a pickle was opened."""

    opened = False

    def __reduce__(self) -> tuple[Any, ...]:
        return (Marker.open, ())

    @staticmethod
    def open() -> None:
        Marker.opened = True


@pytest.mark.parametrize(
    ("save", "error", "text"),
    [
        (lambda path: torch.save(TwoIntoTwo(), path), ConfigInvalid, "was written by torch.save: a Python pickle"),
        (lambda path: torch.save({"weights": Marker()}, path), ConfigInvalid, "was written by torch.save"),
        (lambda path: path.write_bytes(pickle.dumps(Marker())), ConfigInvalid, "is a Python pickle, expected"),
        (lambda path: path.write_bytes(b"nothing"), ConfigInvalid, "is no PyTorch archive, expected"),
    ],
)
def test_a_pickle_is_refused_and_not_opened(
    repository: Path, save: Callable[[Path], object], error: type[KushiError], text: str
) -> None:
    folder = put(repository, "m", TwoIntoTwo(), model_config("m", fp32("x", "y"), fp32("o")))
    save(folder / "1" / "model.pt")
    Marker.opened = False
    with pytest.raises(error) as raised:
        loaded(repository)
    assert text in str(raised.value)
    assert "torch.jit.script(model).save(...) or torch.export.save(" in str(raised.value)
    assert not Marker.opened


class Gelu(nn.Module):
    """What PyTorch writes of it has a newer format than other models: it keeps its version elsewhere"""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(x)


def test_torchscript_of_a_newer_format_is_loaded(repository: Path) -> None:
    folder = put(repository, "m", Gelu(), model_config("m", fp32("x"), fp32("o")))
    with zipfile.ZipFile(folder / "1" / "model.pt") as archive:
        assert {name.partition("/")[2] for name in archive.namelist()} >= {".data/version", "constants.pkl"}
    loaded(repository)


def test_sample_inputs_that_are_no_tensors_are_refused_and_not_opened(repository: Path) -> None:
    program = export(TwoIntoTwo(), (torch.zeros(2, 4), torch.zeros(2, 4)))
    program.example_inputs = ((torch.zeros(2, 4), Marker()), {})
    folder = put(repository, "m", program)
    Marker.opened = False
    with pytest.raises(ConfigInvalid, match="has sample inputs that are no plain tensors, and is not loaded"):
        loaded(repository)
    assert not Marker.opened
    assert (folder / "1" / "model.pt2").exists()


TWICE = b"".join(b"h%ch%c\x86q%c" % (number, number, number + 1) for number in range(60))
"""Each of these holds the one before it twice"""


@pytest.mark.parametrize(
    ("pickled", "text"),
    [
        # PyTorch knows it, as it knows tensors
        (b"\x80\x02(cbuiltins\nbytearray\n(J\xff\xff\xff\x7ftRt.", "that are no plain tensors, and is not loaded"),
        (b"\x80\x02K\x01\x85q\x00" + TWICE + b".", "of more than 100000 parts, and is not loaded"),
    ],
    ids=["memory", "parts"],
)
def test_sample_inputs_that_become_large_are_refused_and_not_opened(
    repository: Path, pickled: bytes, text: str
) -> None:
    program = export(TwoIntoTwo(), (torch.zeros(2, 4), torch.zeros(2, 4)))
    path = put(repository, "m", program) / "1" / "model.pt2"
    with zipfile.ZipFile(path) as archive:
        records = {record: archive.read(record) for record in archive.namelist()}
    (place,) = (record for record in records if record.endswith("sample_inputs/model.pt"))
    samples = io.BytesIO()
    with zipfile.ZipFile(samples, "w") as archive:
        archive.writestr("model/data.pkl", pickled)
        archive.writestr("model/version", b"3")
    with zipfile.ZipFile(path, "w") as archive:
        for record, content in records.items():
            archive.writestr(record, samples.getvalue() if record == place else content)
    with pytest.raises(ConfigInvalid, match=f"has sample inputs {text}"):
        loaded(repository)


def test_a_torchscript_archive_that_is_damaged_is_named(repository: Path) -> None:
    folder = put(repository, "m", TwoIntoTwo(), model_config("m", fp32("x", "y"), fp32("o")))
    path = folder / "1" / "model.pt"
    with zipfile.ZipFile(path, "w") as archive:
        for record in ("data.pkl", "constants.pkl", "version"):
            archive.writestr(f"model/{record}", "3")
    with pytest.raises(ConfigInvalid, match=r"torchscript model '.*model\.pt' cannot be loaded: "):
        loaded(repository)


@pytest.mark.parametrize("kind", ["script", "exported"])
def test_weights_that_are_not_what_was_saved_are_refused(repository: Path, kind: str) -> None:
    made = nn.Linear(64, 64) if kind == "script" else export(nn.Linear(64, 64), (torch.zeros(2, 64),))
    tensors = [("input", "FP32", [64])], [("OUTPUT__0", "FP32", [64])]
    folder = put(repository, "m", made, model_config("m", *tensors, max_batch_size=8))
    (path,) = (folder / "1").iterdir()
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        largest = max(archive.infolist(), key=lambda record: record.file_size)
    content[largest.header_offset + largest.file_size // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ConfigInvalid, match=r"is damaged: the checksum of its record 'model/data/.*0' is another one"):
        loaded(repository)


def test_what_steers_torchscript_is_refused_for_exported_programs(repository: Path) -> None:
    text = 'parameters { key: "ENABLE_JIT_PROFILING" value { string_value: "true" } }'
    put(repository, "m", export(TwoIntoTwo(), (torch.zeros(2, 4), torch.zeros(2, 4))), text)
    with pytest.raises(Unsupported, match=r"config\.pbtxt: parameter 'ENABLE_JIT_PROFILING' .* is about TorchScript"):
        loaded(repository)


def test_a_directory_decides_by_the_file_that_it_holds(repository: Path) -> None:
    folder = put(repository, "m", export(TwoIntoTwo(), (torch.zeros(2, 4), torch.zeros(2, 4))), 'backend: "pytorch"')
    assert loaded(repository).specification.backend == "pytorch"
    save_exported(export(TwoIntoTwo(), (torch.zeros(2, 4), torch.zeros(2, 4))), folder / "1" / "other.pt2")
    (folder / "1" / "model.pt2").unlink()
    (folder / "config.pbtxt").write_text('backend: "pytorch" default_model_filename: "other.pt2"')
    assert loaded(repository).specification.inputs[0].name == "x"


@pytest.mark.parametrize("name", ["../../secret.pt", "/etc/secret.pt", "sub/../../x.pt"])
def test_the_file_lies_inside_the_version(repository: Path, name: str) -> None:
    put(repository, "m", TwoIntoTwo(), f'backend: "pytorch" default_model_filename: "{name}"')
    with pytest.raises(ConfigInvalid, match="must be a path inside the version directory"):
        loaded(repository)
