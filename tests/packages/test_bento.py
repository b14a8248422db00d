"""The Bento of this repository, served where nothing of this repository is: with what it locks, from its own store"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tritonclient import http

from tests.e2e.bento import Bento
from tests.e2e.pictures import encoded, written
from tests.packages.environments import run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.packages.conftest import Built


def test_the_bento_serves_with_what_it_locks(bento: Built, tmp_path: Path) -> None:
    serving = Bento(tmp_path, bento.tag, python=bento.python, PYTHONPATH="", BENTOML_HOME=str(bento.home))
    with serving.until_ready() as served, served.client() as client:
        picture = ("words.png", encoded(written("seven birds")), "image/png")
        answer = client.post("/read", files={"document": picture}).raise_for_status().json()
        assert answer["text"] == "seven birds"
        with http.InferenceServerClient(f"127.0.0.1:{served.port}") as triton:
            line = http.InferInput("line", [1, 3, 48, 160], "FP32")
            line.set_data_from_numpy(np.zeros((1, 3, 48, 160), np.float32))
            assert triton.infer("lines", [line]).as_numpy("ids").shape == (1, 20)


def test_the_bento_has_the_service_and_nothing_else_of_this_repository(bento: Built) -> None:
    files = {"bentofile.yaml", "service.py", "LICENSE", "README.md"}
    folders = {"runners", "preprocessing", "model_repository", "requirements", "wheels"}
    assert {path.parts[0] for path in bento.packed} == files | folders
    assert [path for path in bento.packed if path.name == "__pycache__"] == []


def test_the_environment_of_the_bento_has_no_package_of_this_repository(bento: Built, tmp_path: Path) -> None:
    names = "import importlib.util as u; print([u.find_spec(name) for name in ('kushi', 'runners', 'preprocessing')])"
    assert run(bento.python, "-c", names, cwd=tmp_path) == "[None, None, None]\n"
