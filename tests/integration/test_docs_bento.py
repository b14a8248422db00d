"""The programs of the page about BentoML services, run in this process."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import bentoml
import pytest

from runners import InvalidInput
from tests.e2e.pictures import written
from tests.serving import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

PAGE: Final = (ROOT / "docs" / "bento.md").read_text(encoding="utf-8")
# these programs run in the process of the tests, which has the package under its name in this repository
PROGRAMS: Final = [
    program.replace("from kushi.", "from runners.")
    for program in re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
]


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 - the page's class
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {"__name__": "counter"}
    exec(PROGRAMS[0], names)
    instance = names["Counter"]()
    yield instance
    instance.models.close()


def page(path: Path, text: str) -> Path:
    written(text).save(path)
    return path


def test_the_service_of_the_page_is_short_and_counts(counter: Any, tmp_path: Path) -> None:  # noqa: ANN401 - as above
    assert len(PROGRAMS[0].splitlines()) <= 30
    assert isinstance(counter.bento_service, bentoml.Service)
    for text, lines in (("seven birds", 1), ("seven birds\non a wire", 2)):
        assert asyncio.run(counter.count(page(tmp_path / "page.png", text))) == lines


def test_an_upload_that_the_service_of_the_page_cannot_read_is_refused(counter: Any, tmp_path: Path) -> None:  # noqa: ANN401 - as above
    (tmp_path / "text").write_text("no picture")
    with pytest.raises(InvalidInput, match="PNG") as raised:
        asyncio.run(counter.count(tmp_path / "text"))
    assert raised.value.status == 400


def test_the_reader_of_the_page_reads(tmp_path: Path) -> None:
    (program,) = (program for program in PROGRAMS if "reader = UploadReader(" in program)
    names: dict[str, Any] = {"__name__": "reading"}
    exec(program, names)
    shown, pixels = asyncio.run(names["read"](page(tmp_path / "page.png", "birds")))
    assert (shown.shape[2], pixels.shape[:2]) == (3, (1, 3))


def test_the_websocket_of_the_page_answers() -> None:
    (program,) = (program for program in PROGRAMS if "@websocket(" in program)
    names: dict[str, Any] = {"__name__": "listening"}
    exec(program, names)

    async def messages() -> AsyncIterator[bytes]:
        yield b"abc"
        yield b""

    async def main() -> list[int]:
        return [answer.length async for answer in names["Lengths"]().lengths(messages())]

    assert asyncio.run(main()) == [3, 0]


def test_the_program_of_a_test_prints_what_the_page_says() -> None:
    (program,) = (program for program in PROGRAMS if "async_is_server_ready" in program)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=50)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_models_of_the_store_are_made_and_served_as_the_page_says(tmp_path: Path) -> None:
    (using,) = (program for program in PROGRAMS if "BentoModel(" in program)
    (making,) = (program for program in PROGRAMS if "models.create(" in program)
    lines = [
        *(making, "import shutil"),
        *(
            'with bentoml.models.create("calculators") as stored:',
            '    shutil.copytree("model_repository/best", f"{stored.path}/best")',
        ),
        using,
        *("with Models.open() as engine:", '    print([one["name"] for one in engine.get_model_repository_index()])'),
    ]
    own = {**os.environ, "BENTOML_HOME": str(tmp_path), "BENTOML_DO_NOT_TRACK": "True"}
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=False, timeout=50)
    assert (done.returncode, done.stdout) == (0, "['best', 'turned']\n"), done.stderr
