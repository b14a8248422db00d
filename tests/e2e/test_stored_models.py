"""Models of BentoML's store as the repository of an engine: a Bento names them, and is served with those it names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import bentoml

from tests import models
from tests.bentoml_internals import ModelStore
from tests.e2e.bento import START_S, Bento
from tests.serving import ROOT, environment

_SERVICE: Final = """
import bentoml
from runners.bento import depends, engine, service

Models = engine(bentoml.models.BentoModel("calculators:latest"), bentoml.models.BentoModel("files"), name="Models")


@service(name="Reader", workers=1)
class Reader:
    models = depends(Models)
"""


def test_a_bento_is_served_with_the_models_that_it_was_built_with(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "models").mkdir(parents=True)
    store = ModelStore(home / "models")

    with bentoml.models.create("calculators", _model_store=store) as calculators:
        models.write_add_sub(Path(calculators.path))
    with bentoml.models.create("files", _model_store=store) as files:
        (Path(files.path) / "same.onnx").write_bytes(models.identity("FP32").SerializeToString())
    code = tmp_path / "code"
    code.mkdir()
    (code / "service.py").write_text(_SERVICE)
    # without a look at a package index
    (code / "bentofile.yaml").write_text('service: "service:Reader"\npython:\n  lock_packages: false\n')
    variables = {"BENTOML_HOME": str(home), "BENTOML_DO_NOT_TRACK": "True", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "bentoml", "build", "--version", "1"]
    built = subprocess.run(
        command,
        cwd=code,
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=START_S,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    with bentoml.models.create("calculators", _model_store=store) as newer:
        models.write_slow(Path(newer.path))

    needed = (home / "bentos" / "reader" / "1" / "bento.yaml").read_text()
    assert f"tag: {calculators.tag}" in needed
    assert f"tag: {files.tag}" in needed
    with Bento(tmp_path, "reader:1", BENTOML_HOME=str(home)).until_ready() as bento:
        found = bento.fetch("POST", "/v2/repository/index").json()
        assert [(model["name"], model["state"]) for model in found] == [("add_sub", "READY"), ("same", "READY")]
        assert bento.fetch("GET", "/v2/models/same/ready").status == 200
