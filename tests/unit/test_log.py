import logging
import re
from pathlib import Path
from typing import Literal

import pytest

from runners import log


def lines(path: Path, *, form: Literal["default", "ISO8601"] = "default", off: str = "", verbose: int = 0) -> list[str]:
    """What a logger of the package writes to a file under these settings"""
    info, warning, error = (off != level for level in ("info", "warning", "error"))
    root = logging.getLogger("runners")
    before = (root.handlers[:], root.level, root.propagate)
    root.handlers[:] = []
    try:
        log.setup(info=info, warning=warning, error=error, verbose=verbose, form=form, file=str(path))
        logger = logging.getLogger("runners.log")
        logger.debug("a detail")
        logger.info("two\nlines")
        logger.warning("careful")
        logger.error("wrong")
        logger.info("%s", log.table(["A"], [["b"]]), extra={"table": True})
        for handler in root.handlers:
            handler.close()
    finally:
        root.handlers[:], root.level, root.propagate = before
    return path.read_text().split("\n")


def test_a_line_looks_like_tritons(tmp_path: Path) -> None:
    first = lines(tmp_path / "log")[0]
    assert re.fullmatch(r"I\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ test_log\.py:\d+\] two\\nlines", first)


def test_the_other_form_has_the_date_first(tmp_path: Path) -> None:
    first = lines(tmp_path / "log", form="ISO8601")[0]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ I \d+ test_log\.py:\d+\] two\\nlines", first)


def test_a_message_is_one_line_and_a_table_is_not(tmp_path: Path) -> None:
    text = lines(tmp_path / "log")
    assert text[3:] == [text[3], "+---+", "| A |", "+---+", "| b |", "+---+", "", ""]


@pytest.mark.parametrize(("level", "letter"), [("info", "I"), ("warning", "W"), ("error", "E")])
def test_a_level_can_be_switched_off(tmp_path: Path, level: str, letter: str) -> None:
    text = lines(tmp_path / "log", off=level)
    assert not any(re.match(rf"{letter}\d{{4}} ", line) for line in text)
    assert any(re.match(r"[IWE]\d{4} ", line) for line in text)


def test_details_are_written_only_when_asked_for(tmp_path: Path) -> None:
    assert not any("a detail" in line for line in lines(tmp_path / "quiet"))
    assert any("a detail" in line for line in lines(tmp_path / "loud", verbose=1))


def test_a_table_has_columns_as_wide_as_their_widest_line() -> None:
    drawn = log.table(("Model", "Version", "Status"), [("m", "1", "READY"), ("other", "-", "UNAVAILABLE: a\nb")])
    assert drawn.split("\n") == [
        "",
        "+-------+---------+----------------+",
        "| Model | Version | Status         |",
        "+-------+---------+----------------+",
        "| m     | 1       | READY          |",
        "| other | -       | UNAVAILABLE: a |",
        "|       |         | b              |",
        "+-------+---------+----------------+",
        "",
    ]


def test_a_table_without_rows_is_its_head() -> None:
    assert log.table(("A",), []).split("\n") == ["", "+---+", "| A |", "+---+", "+---+", ""]
