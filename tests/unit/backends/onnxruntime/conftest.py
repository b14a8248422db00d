from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from runners.backends.onnxruntime.files import ModelFiles
from runners.repository.layout import scan
from tests import models


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., ModelFiles]:
    """Those of a model `m` without a word of configuration, in a repository of its own"""

    def make(**settings: str) -> ModelFiles:
        repository = tmp_path / "models"
        if not repository.exists():
            models.write(repository, "m", b"")
        (source,) = scan([repository]).models
        named: Mapping[str, str] = {key.replace("_", "-"): value for key, value in settings.items()}
        return ModelFiles(source, 1, named)

    return make
