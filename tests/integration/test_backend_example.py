"""The suite that every engine passes, on an engine that somebody would add: `tests/formula_backend`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from runners import Engine, EngineOptions
from runners.errors import ConfigInvalid
from runners.repository import discovery
from runners.repository.config import parse
from tests import conformance, models
from tests.serving import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runners.backends import PythonEngine

PACKAGE: Final = ROOT / "tests/formula_backend"
MOST_LINES: Final = 150
FORMULAS: Final = {
    "Identity": "{0}",
    "HandThrough": "{0}",
    "SumAndDifference": "{0} + {1}\n{0} - {1}",
    "OptionalAddend": "{0} + 10 if {1} is None else {0} + {1}",
    "SmallNumbersOnly": "arange(8)[{0}]",
    "NonZero": "stack(nonzero({0}))",
}


@pytest.fixture(autouse=True)
def _found(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As installed: its entry point is that of the project file"""
    monkeypatch.syspath_prepend(PACKAGE)
    from kushi_formula.descriptor import DESCRIPTOR  # type: ignore[import-not-found]  # noqa: PLC0415

    monkeypatch.setattr(
        discovery, "_entry_points", lambda: [discovery._Brought("formula", "tests", lambda: DESCRIPTOR)]
    )
    discovery.found.cache_clear()
    yield
    discovery.found.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "kushi_formula"]:
        del sys.modules[name]


class Subject:
    """Engines as the backend makes them of files"""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def engine(
        self, model: str, inputs: Sequence[conformance.Tensor], outputs: Sequence[conformance.Tensor]
    ) -> PythonEngine:
        from kushi_formula.backend import Formulas  # type: ignore[import-not-found]  # noqa: PLC0415

        path = self._directory / "model.formula"
        formulas = FORMULAS[model].format(*(name for name, _, _ in inputs)).splitlines()
        names = [name for name, _, _ in outputs]
        path.write_text("\n".join(f"{name} = {text}" for name, text in zip(names, formulas, strict=True)))
        bound = Formulas(path).bind(parse(configured(inputs, outputs), "config.pbtxt"))
        (session,) = bound.sessions(1)
        engine: PythonEngine = session.engine
        return engine

    def takes(self, datatype: str) -> bool:
        return True


@pytest.mark.parametrize("case", conformance.CASES)
def test_the_example_conforms(case: str, tmp_path: Path) -> None:
    conformance.run(case, Subject(tmp_path))


def test_the_folder_of_the_example_is_short() -> None:
    lines = sum(len(path.read_text().splitlines()) for path in (PACKAGE / "kushi_formula").rglob("*.py"))
    assert lines <= MOST_LINES


def test_a_repository_with_its_model_is_served(repository: Path) -> None:
    write(repository, "SUM = A + B\nDIFFERENCE = A - B")
    with Engine(repository) as engine:
        given = {"A": np.array([[1, 2]], np.float32), "B": np.array([[3, 5]], np.float32)}
        answer = engine.infer("formula", given)
        np.testing.assert_array_equal(answer["SUM"], [[4, 7]])
        np.testing.assert_array_equal(answer["DIFFERENCE"], [[-2, -3]])


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("SUM = A + B", "output 'DIFFERENCE' has no formula"),
        ("SUM = A +\nDIFFERENCE = A", "formula 'A \\+' cannot be read"),
        ("SUM = __import__('os')\nDIFFERENCE = A", "has more than names, numbers"),
        ("SUM = A.data\nDIFFERENCE = A", "has more than names, numbers"),
    ],
)
def test_a_file_that_is_none_is_an_error_of_the_model(repository: Path, text: str, error: str) -> None:
    write(repository, text)
    with (
        Engine(repository, options=EngineOptions(exit_on_error=False)) as engine,
        pytest.raises(ConfigInvalid, match=error),
    ):
        raise engine.failures["formula"]


def write(repository: Path, text: str) -> None:
    path = repository / "formula/1/model.formula"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    tensors = [("A", "FP32", [2]), ("B", "FP32", [2])], [("SUM", "FP32", [2]), ("DIFFERENCE", "FP32", [2])]
    (repository / "formula/config.pbtxt").write_text(configured(*tensors, max_batch_size=8))


def configured(inputs: Sequence[models.Io], outputs: Sequence[models.Io], max_batch_size: int = 0) -> str:
    text = models.config("formula", inputs, outputs, max_batch_size=max_batch_size)
    return text.replace("onnxruntime_onnx", "formula_text")
