"""A BentoML that lacks what we stand on is refused when it is imported, with a text that says what that is."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from typing import TYPE_CHECKING, Final

import pytest

from runners.bento.internals.needed import LOOKED_UP, NAMES, SUPPORTED, check
from tests.serving import ROOT, environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOUND: Final = f"bentoml {metadata.version('bentoml')} found, expected {SUPPORTED}: it lacks "
HINT: Final = ": pip install 'kushi[bento]'"
SERVICE: Final = """
import _bentoml_impl.serde
del _bentoml_impl.serde.ALL_SERDE
from runners.bento import engine

Models = engine("model_repository")
"""


def refusal() -> str:
    with pytest.raises(ImportError) as caught:
        check()
    return str(caught.value)


def test_a_service_on_one_that_lacks_something_does_not_start_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text(SERVICE)
    own = {"PYTHONPATH": str(ROOT), "BENTOML_HOME": str(tmp_path / "home"), "BENTOML_DO_NOT_TRACK": "True"}
    done = subprocess.run(
        [sys.executable, "-m", "bentoml", "serve", "--port", "0"],
        cwd=tmp_path,
        env={**environment(), **own},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 1
    assert f"{FOUND}_bentoml_impl.serde.ALL_SERDE{HINT}" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        ("bentoml.Service", "url"),
        ("_bentoml_impl.server.app.ServiceAppFactory", "create_instance"),
        ("bentoml._internal.server.http.traffic", "TimeoutMiddleware"),
    ],
)
def test_a_name_that_is_gone_is_said(monkeypatch: pytest.MonkeyPatch, owner: str, name: str) -> None:
    monkeypatch.delattr(f"{owner}.{name}")
    assert refusal() == f"{FOUND}{owner}.{name}{HINT}"


@pytest.mark.parametrize("module", ["_bentoml_sdk.method", "circus.watcher"])
def test_a_module_that_is_gone_is_said_once(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert refusal() == f"{FOUND}import of {module} halted; None in sys.modules{HINT}"


def test_a_name_of_ours_that_would_never_be_asked_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def create_watcher() -> bool:
        return False

    monkeypatch.setattr("bentoml.serving.create_watcher", create_watcher)
    assert refusal() == f"{FOUND}'running_inside_container' in bentoml.serving.create_watcher{HINT}"


def test_where_there_is_none_that_is_said_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setitem(sys.modules, "bentoml", None)
    monkeypatch.setattr(metadata, "version", version)
    assert refusal() == f"bentoml is not installed, expected {SUPPORTED}{HINT}"


def test_the_releases_are_those_that_the_project_installs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"bentoml{SUPPORTED}" in project["optional-dependencies"]["bento"]


def test_all_that_is_imported_from_inside_is_looked_at() -> None:
    imported = set(_imported())
    assert imported
    wanted = {*NAMES, *(f"{module}.{name.partition('.')[0]}" for module in NAMES for name in NAMES[module])}
    assert imported - wanted == set()


def test_the_decision_names_all_of_it() -> None:
    text = (ROOT / "docs" / "adr" / "0007-bentoml-internals.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", text))))
    used = [step for names in NAMES.values() for name in names for step in name.split(".")]
    used += [name for names in LOOKED_UP.values() for name in names]
    assert {*used} - named == set()


def _imported() -> Iterator[str]:
    ours = ROOT / "runners" / "bento" / "internals"
    for path in ours.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and re.match("_?bentoml|circus", node.module or ""):
                yield from (f"{node.module}.{one.name}" for one in node.names)
