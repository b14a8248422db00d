"""
Which networks with strings may run. On a CPU most operators of OpenVINO copy strings as if they were bytes, and free
them twice, which ends the process. Those that are made for strings do not; the text of a network says which it has.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.parsers import expat

from ...errors import Unsupported
from .network_text import read_network

__all__ = ["check_strings"]

_MADE_FOR_STRINGS = frozenset({"Const", "Parameter", "Result", "StringTensorPack", "StringTensorUnpack"})
_EXTENSION = "extension"
_INSTEAD = "use backend 'onnxruntime', or a Python model"


def check_strings(path: Path, tensors: Iterable[tuple[str, str, Sequence[int] | None]]) -> None:
    """Refuses a network in which strings would end the process"""
    names = [name for name, datatype, _ in tensors if datatype == "BYTES"]
    if not names:
        return
    subject = f"openvino model '{path}': tensor '{names[0]}' is of BYTES"
    if path.suffix != ".xml":
        raise Unsupported(f"{subject}, which OpenVINO takes safely in models of its own format alone: {_INSTEAD}")
    try:
        unsafe = _unsafe(path)
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise Unsupported(f"{subject}, and its operators cannot be read: {error}") from None
    if unsafe:
        name, kind = unsafe
        raise Unsupported(
            f"{subject}, and operator '{name}' of type {kind} would free strings that are not its own, which ends the "
            f"process: {_INSTEAD}"
        )


def _unsafe(path: Path) -> tuple[str, str] | None:
    """The first operator that has strings and is not made for them"""
    # an operator may hold a network of its own; each with its name and type, and whether strings harm it
    open_layers: list[tuple[str, str, bool]] = []
    found: list[tuple[str, str]] = []

    def begin(tag: str, attributes: dict[str, str]) -> None:
        if tag == "layer":
            kind = attributes.get("type", "")
            is_safe = kind in _MADE_FOR_STRINGS or attributes.get("version") == _EXTENSION
            open_layers.append((attributes.get("name", ""), kind, is_safe))
        elif tag == "port" and attributes.get("precision") == "STRING" and open_layers:
            name, kind, is_safe = open_layers[-1]
            if not is_safe and not found:
                found.append((name, kind))

    def end(tag: str) -> None:
        if tag == "layer":
            open_layers.pop()

    with path.open("rb") as file:
        read_network(file, begin, end)
    return found[0] if found else None
