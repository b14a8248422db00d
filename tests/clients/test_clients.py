"""Clients that nobody here wrote, each in a process of its own: two of them define the same messages"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests import generative, models, texts
from tests.serving import GRPC_LINE, ROOT, Server

if TYPE_CHECKING:
    from collections.abc import Iterator

PYTHON: Final = ROOT / ".venv-clients" / "bin" / "python"
PROGRAMS: Final = sorted(path for path in (Path(__file__).parent / "programs").glob("*.py") if path.stem != "__init__")
ANSWER_S: Final = 120


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("repository")
    models.write_add_sub(repository)
    models.write_identities(repository)
    texts.write(repository, "vectors", text=texts.parameter("dimensions", "any"))
    (repository / "writer" / "1").mkdir(parents=True)
    scripts = {
        "hello": ("Hello", ",", " world", "!"),
        "call": ("<tool_call>", '{"name": "add", "arguments"', ': {"a": 1}}</tool_call>'),
    }
    generative.write_scripted(repository / "writer" / "1" / "model.gguf", scripts)
    (repository / "writer" / "config.pbtxt").write_text(
        'parameters { key: "kushi.tool_calls" value { string_value: "hermes" } }'
    )
    texts.write(repository, "ranker", made=texts.network("pairs", 1))
    server = Server.start(repository)
    yield server
    server.stop()


@pytest.mark.parametrize("program", PROGRAMS, ids=[path.stem for path in PROGRAMS])
def test_the_program_is_served(server: Server, program: Path) -> None:
    grpc = f"127.0.0.1:{server.log.wait_for(GRPC_LINE, 10).group(1)}"
    command: list[str | Path] = [PYTHON, program, f"127.0.0.1:{server.http[1]}", grpc]
    done = subprocess.run(
        command, env=os.environ, capture_output=True, text=True, timeout=ANSWER_S, check=False, cwd=program.parent
    )
    assert done.returncode == 0, done.stdout + done.stderr
    sys.stdout.write(done.stderr)
