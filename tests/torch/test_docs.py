"""The page about PyTorch models: its program runs, with its configuration, and prints what the page says."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from runners.errors import ConfigInvalid
from tests.integration.test_docs_python import blocks, environment
from tests.serving import ROOT
from tests.torch.models import TwoIntoTwo, loaded, model_config, put

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (ROOT / "docs" / "pytorch.md").read_text(encoding="utf-8")


def run(program: str, folder: Path) -> str:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_program_of_the_page_prints_what_the_page_says(tmp_path: Path) -> None:
    configuration, printed, *_ = blocks(PAGE, "text")
    folder = tmp_path / "my_models" / "flowers_script"
    folder.mkdir(parents=True)
    (folder / "config.pbtxt").write_text(configuration, encoding="utf-8")
    assert run("\n".join(blocks(PAGE, "python")), tmp_path) == printed


def test_a_signature_is_refused_in_the_words_of_the_page(repository: Path) -> None:
    put(repository, "m", TwoIntoTwo(), model_config("m", [("x", "FP32", [4])], [("o", "FP32", [4])]))
    with pytest.raises(ConfigInvalid) as raised:
        loaded(repository)
    _, words, text = str(raised.value).partition("unable to load")
    assert f"\n{words}{text}\n" in PAGE


def test_a_pickle_is_refused_in_the_words_of_the_page(repository: Path) -> None:
    folder = repository / "flowers" / "1"
    folder.mkdir(parents=True)
    run("import torch; torch.save(torch.nn.Linear(2, 2), 'model.pt')", folder)
    with pytest.raises(ConfigInvalid) as raised:
        loaded(repository)
    assert str(raised.value).replace(str(repository), "my_models") in PAGE
