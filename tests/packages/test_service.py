"""A service that its author wrote with the installed package, in a directory of the author's own"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from tests.e2e.bento import Bento
from tests.e2e.pictures import encoded, written
from tests.integration.test_docs_bento import PROGRAMS
from tests.packages.environments import run
from tests.serving import ROOT
from tests.small_service import MODELS

# the class of the page, with an image, in a directory that has a package `runners`
_SERVICE: Final = (
    PROGRAMS[0]
    .replace("from runners.bento import", "from kushi.bento import image,")
    .replace("from runners.uploads", "from kushi.uploads")
    .replace("@service\n", "@service(image=image())\n")
    + "\nimport runners\n\nassert runners.OWNER == 'the user'\n"
)


def test_a_service_of_the_page_runs_beside_a_package_called_runners(python: Path, users: Path) -> None:
    assert "from kushi.bento import" in _SERVICE
    assert "image=image()" in _SERVICE
    for name in ("preprocessing", "model_repository"):
        # that model imports the package by the name that it has here
        shutil.copytree(ROOT / name, users / name, ignore=shutil.ignore_patterns("__pycache__", "reader"))
    (users / "service.py").write_text(_SERVICE, encoding="utf-8")
    serving = Bento(users, python=python, PYTHONPATH="")
    with serving.until_ready() as bento, bento.client() as client:
        engine = Path(f"/proc/{bento.engine}/cmdline").read_bytes().split(b"\0")
        assert engine[:4] == [str(python).encode(), b"-m", b"kushi", b"serve"]
        answer = client.post("/count", files={"page": ("page.png", encoded(written("seven\nbirds")), "image/png")})
        assert answer.raise_for_status().json() == 2
        assert client.get("/v2/models/lines/ready").status_code == 200


def test_a_service_in_a_test_has_the_engine_in_its_own_process(python: Path, users: Path) -> None:
    shutil.copytree(MODELS, users / "model_repository")
    lines = (
        "import numpy as np, bentoml, runners",
        "from kushi.bento import depends, engine, service",
        "Models = engine('model_repository')",
        "@service",
        "class Reader:",
        "    models = depends(Models)",
        "reader = Reader()",
        "print(reader.models.digits.run(np.zeros((1, 1, 8, 8), np.float32))['logits'].shape, runners.OWNER)",
        "reader.models.close()",
    )
    assert run(python, "-c", "\n".join(lines), cwd=users, BENTOML_DO_NOT_TRACK="True") == "(1, 10) the user\n"
