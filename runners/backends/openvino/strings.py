"""
Which networks with strings may run. On a CPU most operators of OpenVINO copy strings as if they were bytes, and free
them twice, which ends the process. Those that are made for strings do not; the text of a network says which it has.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from ...errors import Unsupported

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
        unsafe = next(_unsafe(path), None)
    except ET.ParseError as error:
        raise Unsupported(f"{subject}, and its operators cannot be read: {error}") from None
    if unsafe:
        name, kind = unsafe
        raise Unsupported(
            f"{subject}, and operator '{name}' of type {kind} would free strings that are not its own, which ends the "
            f"process: {_INSTEAD}"
        )


def _unsafe(path: Path) -> Iterator[tuple[str, str]]:
    """The operators that have strings and are not made for them"""
    for _, layer in ET.iterparse(path):  # noqa: S314 - it was read before, and expat bounds what entities become
        if layer.tag != "layer":
            continue
        known = layer.get("type") in _MADE_FOR_STRINGS or layer.get("version") == _EXTENSION
        if not known and any(port.get("precision") == "STRING" for port in layer.iter("port")):
            yield layer.get("name", ""), layer.get("type", "")
        layer.clear()
