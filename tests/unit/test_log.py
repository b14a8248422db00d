import logging
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Literal, Protocol

import pytest

from runners import LogOptions, log


class Written(Protocol):
    def __call__(self, *, form: Literal["default", "ISO8601"] = "default", off: str = "", verbose: int = 0) -> str: ...


@pytest.fixture
def written(capfd: pytest.CaptureFixture[str]) -> Written:
    """What a logger of the package writes to standard error under these settings"""

    def write(*, form: Literal["default", "ISO8601"] = "default", off: str = "", verbose: int = 0) -> str:
        capfd.readouterr()
        info, warning, error = (off != level for level in ("info", "warning", "error"))
        log.setup(LogOptions(info=info, warning=warning, error=error, verbose=verbose, form=form))
        logger = logging.getLogger("runners.log")
        logger.debug("a detail")
        logger.info("two\nlines")
        logger.warning("careful")
        logger.error("wrong")
        logger.info("%s", log.table(["A"], [["b"]]), extra={"table": True})
        return capfd.readouterr().err

    return write


def test_a_line_looks_like_tritons(written: Written) -> None:
    first = written().split("\n")[0]
    assert re.fullmatch(r"I\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ test_log\.py:\d+\] two\\nlines", first)


def test_the_other_form_has_the_date_first(written: Written) -> None:
    first = written(form="ISO8601").split("\n")[0]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ I \d+ test_log\.py:\d+\] two\\nlines", first)


def test_a_message_is_one_line_and_a_table_is_not(written: Written) -> None:
    text = written().split("\n")
    assert text[3:] == [text[3], "+---+", "| A |", "+---+", "| b |", "+---+", "", ""]


def test_what_clients_say_begins_no_line_and_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    record = logging.LogRecord("runners", logging.INFO, "a.py", 1, "%s", ("a\r\nb\x1b[31m\x9bc\0\x7f\u00e9",), None)
    handler = logging.StreamHandler()
    log.setup(LogOptions())
    handler.setFormatter(logging.getLogger("runners").handlers[0].formatter)
    assert handler.format(record).endswith(r"a\r\nb\x1b[31m\x9bc\x00\x7fé")
    assert capsys.readouterr().err == ""


def test_bytes_of_a_name_that_are_no_text_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    record = logging.LogRecord("runners", logging.INFO, "a.py", 1, "%s", (os.fsdecode(b"model-\xff"),), None)
    handler = logging.StreamHandler()
    log.setup(LogOptions())
    handler.setFormatter(logging.getLogger("runners").handlers[0].formatter)
    handler.handle(record)
    assert capsys.readouterr().err.endswith("] model-\\udcff\n")
    error = ValueError(os.fsdecode(b"model-\xff"))
    record.exc_info = (type(error), error, None)
    handler.handle(record)
    assert capsys.readouterr().err.endswith("ValueError: model-\\udcff\n")


@pytest.mark.parametrize(("level", "letter"), [("info", "I"), ("warning", "W"), ("error", "E")])
def test_a_level_can_be_switched_off(written: Written, level: str, letter: str) -> None:
    text = written(off=level).split("\n")
    assert not any(re.match(rf"{letter}\d{{4}} ", line) for line in text)
    assert any(re.match(r"[IWE]\d{4} ", line) for line in text)


def test_details_are_written_only_when_asked_for(written: Written) -> None:
    assert "a detail" not in written()
    assert "a detail" in written(verbose=1)


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


def test_a_log_file_takes_standard_error_over_and_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("before\n")
    script = f"import os\nfrom runners import log\nlog.redirect({str(path)!r})\nos.write(2, b'native\\n')"
    subprocess.run([sys.executable, "-c", script], check=True)
    assert path.read_text() == "before\nnative\n"


def test_what_cannot_be_formatted_is_no_reason_to_fail(capfd: pytest.CaptureFixture[str]) -> None:
    class Odd:
        def __str__(self) -> str:
            raise RuntimeError

    log.setup(LogOptions())
    logging.getLogger("runners.log").info("%s", Odd())
    assert "what was to be logged cannot be: RuntimeError" in capfd.readouterr().err


def test_a_closed_standard_error_is_no_reason_to_fail() -> None:
    script = """
import logging, os, sys
from runners import LogOptions, log
log.setup(LogOptions())
sys.stderr.close()
logging.getLogger("runners.log").warning("to nobody")
os._exit(7)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 7


@pytest.mark.parametrize("kind", ["pipe", "socket", "terminal"])
def test_a_reader_that_stands_still_keeps_nobody_and_gets_all_lines_later(kind: str) -> None:
    """More than fits into what lies between, and less than what is kept"""
    ends = {"pipe": os.pipe, "socket": connected, "terminal": os.openpty}[kind]()
    text = read_late(ends, lines=2000, length=500, until=rb"line 1999 x{500}\r?\n")
    assert [int(number) for number in re.findall(rb"line (\d+) x{500}\r?\n", text)] == list(range(2000))


def test_lines_that_are_too_many_are_left_out_and_said_so() -> None:
    text = read_late(os.pipe(), lines=10_000, length=1000, until=rb"were left out")
    numbers = [int(number) for number in re.findall(rb"line (\d+) x{1000}\n", text)]
    (left_out,) = re.findall(rb"(\d+) lines were left out: standard error took none", text)
    assert numbers == list(range(len(numbers)))
    assert len(numbers) + int(left_out) == 10_000


def read_late(ends: tuple[int, int], *, lines: int, length: int, until: bytes) -> bytes:
    """What a process logs, of which nothing is read before it has logged all lines"""
    ours, theirs = ends
    script = f"""
import logging, sys
from runners import LogOptions, log
log.setup(LogOptions())
logger = logging.getLogger("runners.log")
for number in range({lines}):
    logger.warning("line %d %s", number, "x" * {length})
sys.stdout.write("done\\n")
sys.stdout.flush()
sys.stdin.readline()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs, text=True
    ) as process:
        os.close(theirs)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        text = b""
        while not re.search(until, text[-4096:]):
            text += os.read(ours, 65536)
        process.stdin.close()
    os.close(ours)
    return text


def connected() -> tuple[int, int]:
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()
