"""Where the files of a model may be that its configuration names: never outside of what is the model's"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigInvalid
from ..repository.files import check_link, is_within
from ..repository.layout import ModelSource

__all__ = ["ModelFiles"]


@dataclass(frozen=True)
class ModelFiles:
    """The directories of one version of a model"""

    source: ModelSource
    version: int
    settings: Mapping[str, str]

    @property
    def directory(self) -> Path:
        """That of the version"""
        return self.source.versions[self.version]

    def library(self, name: str, what: str) -> str:
        """The library `name` in the directory of the version or else of the model; links may not lead out of it"""
        root = self.source.path if self.source.path.is_dir() else self.source.path.parent
        for directory in (self.directory, root):
            path = directory / name
            if not is_within(path, root) or Path(name).is_absolute():
                raise ConfigInvalid(f"{what} '{name}' must be a file inside the directory of the model, '{root}'")
            check_link(path)
            if path.is_file():
                return str(path.absolute())
        raise ConfigInvalid(f"{what} '{name}': not found in '{self.directory}' or '{root}'")

    def output(self, name: str, what: str) -> str:
        """
        What the runtime may write: below the directory of the version, or of the operator's `engine-cache-directory`
        for this model and version
        """
        cache = self.settings.get("engine-cache-directory")
        root = Path(cache, self.source.name, str(self.version)) if cache else self.directory
        path = root / name
        if not name or not is_within(path, root):
            raise ConfigInvalid(f"{what} '{name}' must be a path inside '{root}'")
        path.parent.mkdir(parents=True, exist_ok=True)
        return str(path.absolute())
