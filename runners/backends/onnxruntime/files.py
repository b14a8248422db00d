"""Where the files may be that ONNX Runtime reads and writes for a model"""

from pathlib import Path

from ...errors import ConfigInvalid
from .. import files

__all__ = ["ModelFiles"]


class ModelFiles(files.ModelFiles):
    """The directories of one version of a model, and of the profiles of its sessions"""

    def profile(self, name: str) -> str:
        """Where profiles of this version begin, in the directory that the operator has named"""
        directory = self.settings.get("profile-directory")
        if directory is None:
            raise ConfigInvalid(
                f"parameter 'kushi.profile' of model '{name}' needs a directory, which the operator names: "
                "--backend-config=onnxruntime,profile-directory=PATH"
            )
        return str(Path(directory, f"{name}_{self.version}").absolute())
