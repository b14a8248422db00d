"""The reader of documents, as this repository serves it, for a folder of its own"""

from __future__ import annotations

import hashlib
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..errors import InternalError, Unsupported
from ..pretrained import take, write_whole
from .folder import Names, Written, fill, new_folder, write

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FILES", "check_needed", "digest", "take_models", "write_reader"]

_PACKED: Final = Path(__file__).resolve().with_name("reader_files")
"""In a wheel, which pyproject.toml says"""
_ROOT: Final = _PACKED.parents[2]
"""In a checkout"""
FILES: Final = (
    "service.py",
    "preprocessing",
    "model_repository/best",
    "model_repository/detector/config.pbtxt",
    "model_repository/lines",
    "model_repository/orientation/config.pbtxt",
    "model_repository/reader",
    "model_repository/recogniser/config.pbtxt",
    "requirements/models.toml",
    "docs/images/letter.png",
)
_NEEDED: Final = {"bentoml": "bento", "onnxruntime": "cpu", "PIL": "uploads", "pypdfium2": "uploads"}
"""Modules, and the extras that bring them"""
_LOCK: Final = 'image(lock="requirements/bento-{runtime}.txt")'


def write_reader(folder: Path, say: Callable[[str], None]) -> None:
    """
    folder: a new one, or an empty one
    say: is told what is done
    """
    check_needed()
    names = Names(folder)
    with new_folder(folder) as made:
        for name in FILES:
            _copy(_origin() / name, made / name)
        take_models(made / "requirements/models.toml", made / "model_repository", say)
        shutil.rmtree(made / "requirements")
        (made / "docs/images/letter.png").rename(made / "letter.png")
        shutil.rmtree(made / "docs")
        service = (made / "service.py").read_text(encoding="utf-8")
        if _LOCK not in service:
            raise InternalError("the image of the reader is another one than this expects")
        names.service = "Kushi"
        write(
            made,
            names,
            Written(
                files={
                    "service.py": service.replace(_LOCK, "image()"),
                    "test_service.py": fill("reader/test_service.py.txt", {}),
                },
                packages=("pillow", "pypdfium2"),
                ask="curl -F document=@letter.png localhost:3000/read/text",
            ),
        )


def check_needed() -> None:
    """Of what the reader runs on"""
    absent = [name for name in _NEEDED if not find_spec(name)]
    if absent:
        extras = ",".join(sorted({_NEEDED[name] for name in absent}))
        raise Unsupported(f"the reader needs {', '.join(absent)}: pip install 'kushi[{extras}]'")


def take_models(listing: Path, repository: Path, say: Callable[[str], None]) -> None:
    """
    listing: a models.toml
    say: is told what is done
    """
    take(listing, repository, say)
    recogniser = repository / "recogniser"
    write_whole(recogniser / "characters.txt", _characters(recogniser / "1/model.onnx").encode())


def digest() -> str:
    """Of what is written, and of what writes it"""
    found = hashlib.sha256()
    for place in (Path(__file__).parent, *(_origin() / name for name in FILES)):
        for path in _files(place):
            found.update(path.read_bytes())
    return found.hexdigest()[:12]


def _characters(recogniser: Path) -> str:
    """What it can read, as its own file says: a line for each, and the blank at the end"""
    import onnxruntime  # noqa: PLC0415 - an extra, and nothing else here needs it

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(recogniser, options)
    found = session.get_modelmeta().custom_metadata_map["character"].split("\n")
    known = session.get_outputs()[0].shape[-1]
    # one number is for no character
    if len(found) + 2 != known:
        raise Unsupported(f"the recogniser names {len(found)} characters and answers {known}")
    return "\n".join([*found, " "]) + "\n"


def _origin() -> Path:
    return _PACKED if _PACKED.is_dir() else _ROOT


def _files(place: Path) -> list[Path]:
    found = sorted(place.rglob("*")) if place.is_dir() else [place]
    return [path for path in found if path.is_file() and "__pycache__" not in path.parts]


def _copy(source: Path, target: Path) -> None:
    """Under the name that the package has where it is installed"""
    for path in _files(source):
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".py":
            text = re.sub(r"^(\s*)(from|import) runners\b", r"\1\2 kushi", path.read_text("utf-8"), flags=re.MULTILINE)
            place.write_text(text, encoding="utf-8")
        else:
            shutil.copy(path, place)
