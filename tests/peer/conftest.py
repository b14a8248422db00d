"""Both servers over the models of this folder, for all tests here that compare them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.peer import instances
from tests.peer.pair import Pair
from tests.peer.wrong_ensembles import WRONG
from tests.serving import ROOT
from tests.tritonserver import is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator

MODELS = Path(__file__).with_name("models")
INSTALL_LOG = ROOT / ".venv-triton/install.log"


@pytest.fixture(scope="session")
def installed() -> None:
    if not is_installed():
        log = (
            INSTALL_LOG.read_text(encoding="utf-8").strip() if INSTALL_LOG.exists() else "make test-triton installs it"
        )
        pytest.skip(f"nvidia-pytriton is not installed: {log}")


@pytest.fixture(scope="session")
def pair(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    home = tmp_path_factory.mktemp("pair")
    repository = home / "models"
    shutil.copytree(MODELS, repository)
    for name, text in WRONG.items():
        folder = repository / f"wrong_{name}"
        (folder / "1").mkdir(parents=True)
        (folder / "config.pbtxt").write_text(text)
    shutil.copytree(repository / "no_class", repository / "no_syntax")
    (repository / "no_syntax/1/model.py").write_text("class TritonPythonModel(")
    instances.write(repository)
    with Pair(home, repository) as servers:
        yield servers
