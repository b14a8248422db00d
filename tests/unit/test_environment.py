import ast
import site
from pathlib import Path

import pytest

import runners
from runners.environment import environment_of_child


def test_only_one_file_reads_the_environment() -> None:
    package = Path(runners.__file__).parent
    readers = set()
    # a worker runs in an interpreter of the user's, where nothing else of the package is
    elsewhere = package / "worker"
    for path in (path for path in package.rglob("*.py") if elsewhere not in path.parents):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv", "environb"}:
                readers.add(path.name)
    assert readers == {"environment.py"}


def test_a_child_finds_packages_that_are_not_installed_and_no_installed_one_before_the_standard_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    assert environment_of_child(Path("/sources"))["PYTHONPATH"] == "/sources:/mine"
    for installed in site.getsitepackages():
        assert environment_of_child(Path(installed))["PYTHONPATH"] == "/mine"
