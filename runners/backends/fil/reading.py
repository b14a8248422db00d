"""
Reads forests. What executes them takes a checkpoint of Treelite's version 4, and Treelite makes that of all other
formats.
"""

import ctypes
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kushi_native

from ...errors import ConfigInvalid, Unsupported
from ...repository.files import check_file

__all__ = ["checkpoint_of", "format_of", "read_forest"]

_LOG = logging.getLogger(__name__)
_CHECKPOINT = "treelite_checkpoint"
_VERSION = (4).to_bytes(4, "little")
"""In front of a checkpoint that needs no Treelite"""
_DECISIONS = b"decision_type="
_DECISION = re.compile(rb"[0-9]{1,3}")
_ZERO_IS_MISSING = 1
"""Of the two bits behind the two lowest of a decision"""
_PLACE = re.compile(r"^\[[0-9:]+\] \S+:[0-9]+: ")
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_char_p)

_LOADERS: Mapping[str, Callable[[Any, Path, bool], Any]] = {
    "xgboost": lambda treelite, path, _: treelite.frontend.load_xgboost_model_legacy_binary(path),
    "xgboost_json": lambda treelite, path, lenient: treelite.frontend.load_xgboost_model(
        path, format_choice="json", allow_unknown_field=lenient
    ),
    "xgboost_ubj": lambda treelite, path, lenient: treelite.frontend.load_xgboost_model(
        path, format_choice="ubjson", allow_unknown_field=lenient
    ),
    "lightgbm": lambda treelite, path, _: treelite.frontend.load_lightgbm_model(path),
    _CHECKPOINT: lambda treelite, path, _: treelite.Model.deserialize(path),
}
"""By the values of `model_type`; with Treelite, the file, and whether unknown fields are left out"""
_BY_SUFFIX = {".json": "xgboost_json", ".ubj": "xgboost_ubj", ".txt": "lightgbm", ".tl": _CHECKPOINT}


def format_of(path: Path) -> str:
    """That of a file, where nothing is said: as in Triton, any other one is XGBoost's older form"""
    return _BY_SUFFIX.get(path.suffix, "xgboost")


def read_forest(path: Path, model_type: str, *, unknown_fields: bool) -> kushi_native.Forest:
    """The forest in a file"""
    check_file(path)
    try:
        return kushi_native.Forest(checkpoint_of(path, model_type, unknown_fields=unknown_fields))
    except ConfigInvalid as error:
        raise ConfigInvalid(f"{model_type} model '{path}': {error}") from None


def checkpoint_of(path: Path, model_type: str, *, unknown_fields: bool) -> bytes:
    """The forest in a file, as Treelite writes it"""
    if model_type == _CHECKPOINT:
        with path.open("rb") as file:
            head = file.read(len(_VERSION))
            if head == _VERSION:
                return head + file.read()
    treelite = _treelite(model_type)
    if model_type == "lightgbm":
        _check_missing(path)
    with _heard(treelite) as said:
        try:
            content: bytes = _LOADERS[model_type](treelite, path, unknown_fields).serialize_bytes()
        except Exception as error:  # noqa: BLE001 - its own, and those of texts that are no UTF-8
            raise ConfigInvalid(f"Treelite cannot read it: {_reason(str(error), *said[:1])}") from None
    for text in said:
        _LOG.warning("%s model '%s': %s", model_type, path, _PLACE.sub("", text))
    return content


@contextmanager
def _heard(treelite: Any) -> Iterator[list[str]]:  # noqa: ANN401 - as below
    """What Treelite finds on this thread meanwhile, which it would print"""
    said: list[str] = []

    def hear(text: bytes) -> None:
        said.append(text.decode(errors="backslashreplace"))

    library, hearing = treelite.core._LIB, _CALLBACK(hear)  # noqa: SLF001 - there is no other way to ask for it
    # each thread has its own
    library.TreeliteRegisterLogCallback(hearing)
    library.TreeliteRegisterWarningCallback(hearing)
    try:
        yield said
    finally:
        library.TreeliteRegisterLogCallback(library.log_callback)
        library.TreeliteRegisterWarningCallback(library.warn_callback)


def _treelite(model_type: str) -> Any:  # noqa: ANN401 - its functions take anything
    try:
        import treelite  # noqa: PLC0415 - a checkpoint needs none
    except ImportError as error:
        raise Unsupported(f"model_type '{model_type}' needs Treelite: {error}: pip install 'kushi[fil]'") from error
    return treelite


def _check_missing(path: Path) -> None:
    """LightGBM takes zeros for missing where a model was trained so; Treelite does not, and says nothing"""
    with path.open("rb") as file:
        for line in file:
            if line.startswith(_DECISIONS):
                kinds = line.removeprefix(_DECISIONS).split()
                if any(_DECISION.fullmatch(kind) and int(kind) >> 2 & 3 == _ZERO_IS_MISSING for kind in kinds):
                    raise Unsupported(
                        f"lightgbm model '{path}' was trained with zero_as_missing, which Treelite cannot express: "
                        "train it with use_missing alone, or serve it with a Python model"
                    )


def _reason(*texts: str) -> str:
    """Without the time and the place in Treelite that stand in front of each, and without where it was called"""
    lines = (text.strip().partition("\n")[0] for text in texts)
    return ": ".join(_PLACE.sub("", line) for line in lines if line)
