"""The folder of a new service, which gets all of its files or none"""

from __future__ import annotations

import json
import keyword
import os
import re
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Final

from ..errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Names", "Written", "fill", "inside", "literal", "new_folder", "write"]

_TEMPLATES: Final = Path(__file__).with_name("templates")
# what service.py imports or calls so itself
_TAKEN: Final = {"Annotated", "Any", "Counter", "DType", "Kushi", "Models", "Path", "Picture", "UploadReader"}
_MOST_NAME: Final = 63


@dataclass(frozen=True)
class Written:
    """What makes one kind of service different from others"""

    files: Mapping[str, str]
    packages: Sequence[str]
    """That its image needs besides Kushi"""
    ask: str
    """The command that asks it"""
    copied: tuple[str, ...] = ()
    """Files of templates/ that are taken as they are"""


class Names:
    """What a service in a folder is called: by BentoML, and as a class"""

    def __init__(self, folder: Path) -> None:
        said = Path(os.path.abspath(folder)).name  # noqa: PTH100 - the names of links stay
        words = re.findall("[A-Za-z0-9]+", said)
        self.service = "".join(word[0].upper() + word[1:] for word in words)
        if not self.service.isidentifier() or not said.isascii():
            raise InvalidInput(f"'{said}': expected a name of a-z and digits that begins with a letter")
        if self.service in _TAKEN or keyword.iskeyword(self.service):
            self.service += "Service"
        self.name = "_".join(words).lower()
        if len(self.name) > _MOST_NAME:
            raise InvalidInput(f"'{said}': expected a name of at most {_MOST_NAME} characters, as BentoML does")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Where the files are written, which are in `folder` once all of them are"""
    folder = folder.absolute()
    try:
        is_there = folder.exists()
        if is_there and (not folder.is_dir() or any(folder.iterdir())):
            raise InvalidInput(f"'{folder}' is there and not empty: a new service goes to a folder of its own")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=folder if is_there else folder.parent) as made:
            service = Path(made) / "service"
            service.mkdir()
            yield service
            if is_there:
                for path in sorted(service.iterdir()):
                    path.rename(folder / path.name)
            else:
                service.rename(folder)
    except OSError as error:
        raise InvalidInput(f"'{folder}' cannot be written: {error.strerror or error}") from error


def write(folder: Path, names: Names, written: Written) -> None:
    """Its files, and those that are the same for all kinds"""
    values = {
        "service": names.service,
        "name": names.name,
        "ask": written.ask,
        "packages": "\n".join(f"    - {each}" for each in written.packages),
    }
    common = {
        "bentofile.yaml": fill("all/bentofile.yaml", values),
        "README.md": fill("all/README.md", values),
        ".gitignore": fill("all/gitignore", values),
    }
    for path, text in {**common, **written.files}.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    (folder / "preprocessing/__init__.py").touch()
    for name in written.copied:
        shutil.copy(_TEMPLATES / name, folder)


def literal(text: str) -> str:
    """As Python writes it, whatever it holds: models and their tensors may have any names"""
    return json.dumps(text, ensure_ascii=False)


def inside(text: str) -> str:
    """The same, within a text that has its quotes already"""
    return literal(text)[1:-1]


def fill(template: str, values: Mapping[str, str]) -> str:
    """What a file of templates/ says of this service"""
    return Template(_TEMPLATES.joinpath(template).read_text(encoding="utf-8")).substitute(values)
