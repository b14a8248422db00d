"""The programs of the page about BentoML services, run in this process."""

from __future__ import annotations

import asyncio
import io
import os
import re
import subprocess
import sys
import wave
from typing import TYPE_CHECKING, Any, Final

import bentoml
import numpy as np
import pytest
from PIL import Image, ImageDraw

from runners import InvalidInput
from tests.serving import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from numpy.typing import NDArray

PAGE: Final = (ROOT / "docs" / "bento.md").read_text(encoding="utf-8")
PROGRAMS: Final = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
RATE: Final = 16_000


@pytest.fixture
def checker(monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 - the page's class
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {"__name__": "checker"}
    exec(PROGRAMS[0], names)
    instance = names["Checker"]()
    yield instance
    instance.models.close()


def page(path: Path, digits: str) -> Path:
    picture = Image.new("L", (120 * len(digits), 160), 255)
    ImageDraw.Draw(picture).text((30, 20), digits, fill=0, font_size=100)
    picture.save(path)
    return path


def recording(path: Path, tones: int) -> Path:
    silence: NDArray[np.float64] = np.random.default_rng(0).normal(0, 0.005, RATE // 2)
    tone = 0.3 * sum(np.sin(2 * np.pi * 180 * order * np.arange(RATE // 2) / RATE) / order for order in range(1, 6))
    samples = np.concatenate([silence, *[tone, silence] * tones])
    with io.BytesIO() as buffer, wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
        file.close()
        path.write_bytes(buffer.getvalue())
    return path


def test_the_service_of_the_page_is_short_and_counts(checker: Any, tmp_path: Path) -> None:  # noqa: ANN401 - as above
    assert len(PROGRAMS[0].splitlines()) <= 30
    assert isinstance(checker.bento_service, bentoml.Service)
    heard = recording(tmp_path / "three.wav", 3)
    for digits, same in (("1 2 3", True), ("1 2", False)):
        assert asyncio.run(checker.check(page(tmp_path / "page.png", digits), heard)) is same


def test_an_upload_that_the_service_of_the_page_cannot_read_is_refused(checker: Any, tmp_path: Path) -> None:  # noqa: ANN401 - as above
    (tmp_path / "text").write_text("neither a picture nor a recording")
    heard, shown = recording(tmp_path / "one.wav", 1), page(tmp_path / "page.png", "1")
    for uploads, wanted in (((tmp_path / "text", heard), "PNG"), ((shown, tmp_path / "text"), "expected a WAV file")):
        with pytest.raises(InvalidInput, match=wanted) as raised:
            asyncio.run(checker.check(*uploads))
        assert raised.value.status == 400


def test_the_reader_of_the_page_reads(tmp_path: Path) -> None:
    (program,) = (program for program in PROGRAMS if "reader = UploadReader(" in program)
    names: dict[str, Any] = {"__name__": "reading"}
    exec(program, names)
    assert asyncio.run(names["read"](page(tmp_path / "page.png", "7"))).shape == (1, 1, 8, 8)


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
            '    shutil.copytree("model_repository", stored.path,',
        ),
        *('        ignore=shutil.ignore_patterns("digits"), dirs_exist_ok=True)', using),
        *("with Models.open() as engine:", '    print([one["name"] for one in engine.get_model_repository_index()])'),
    ]
    own = {**os.environ, "BENTOML_HOME": str(tmp_path), "BENTOML_DO_NOT_TRACK": "True"}
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=False, timeout=50)
    assert (done.returncode, done.stdout) == (0, "['digits', 'toneact']\n"), done.stderr
