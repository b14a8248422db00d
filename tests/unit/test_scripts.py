"""The files of tests that scripts and the Makefile name are there: pytest runs none at all where one of them is not."""

import re
import subprocess

import pytest

from tests.serving import ROOT

SCRIPTS = ["Makefile", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / ".ci").iterdir() if path.is_file())]
WORD = re.compile(r"(?<![\w./$])tests/[\w/.{},-]*\w[}\w]*")


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_it_names_is_there(script: str) -> None:
    words = [word for line in (ROOT / script).read_text().splitlines() for word in WORD.findall(line)]
    expanded = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {' '.join(words)}"], capture_output=True, text=True, check=True
    )
    assert [name for name in expanded.stdout.split() if not (ROOT / name).exists()] == []


def test_the_sanitizer_names_some() -> None:
    assert "test_engine_{async" in "".join(WORD.findall((ROOT / ".ci/sanitize").read_text()))
