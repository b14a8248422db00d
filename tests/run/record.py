"""
What is kept of a run, in the folder that the variable RECORD names: for each part (PART) a file in JUnit's format, and
for each of its processes the tests in the order in which it ran them. `pytest -p no:randomly @FILE` runs them so again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pytest

__all__ = ["Record"]

FOLDER: Final = "RECORD"
PART: Final = "PART"


class Record:
    """A plugin, of the process that has all reports and of those that run tests"""

    def __init__(self, config: pytest.Config, folder: str, part: str) -> None:
        self._folder, self._part = folder, part
        self._process = getattr(config, "workerinput", {}).get("workerid", "")
        self._distributes = not self._process and bool(config.getoption("numprocesses", None))
        if not self._process and not config.getoption("xmlpath"):
            config.option.xmlpath = str(Path(folder, "junit", f"{part}.xml"))

    @classmethod
    def wanted(cls, config: pytest.Config) -> Record | None:
        """A pytest that a test starts keeps nothing"""
        if given := getattr(config, "workerinput", {}).get(FOLDER):
            return cls(config, *given)
        folder, part = os.environ.pop(FOLDER, ""), os.environ.get(PART, "tests")
        return cls(config, folder, part) if folder else None

    def pytest_configure_node(self, node: object) -> None:
        """A process begins, which has not the variable any more"""
        node.workerinput[FOLDER] = (self._folder, self._part)  # type: ignore[attr-defined]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if not self._distributes:
            name = "-".join(word for word in (self._part, self._process) if word)
            path = Path(self._folder, "order", f"{name}.txt")
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(f"{nodeid}\n")
