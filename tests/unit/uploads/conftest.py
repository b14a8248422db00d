"""Decoding in a process of its own, whose peak of memory is known"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.serving import ROOT

if TYPE_CHECKING:
    from pathlib import Path

MOST_SECONDS = 30
"""On the processor: the process is ended there, and the worst of what is refused takes a hundredth of that"""

_DECODE = """
import json, resource, sys
from importlib import import_module
from pathlib import Path
from runners.uploads import UnreadableAudio, UnreadableImage

def peak():
    # getrusage would count what the process was before it became this one
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) // 1024

resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[3]),) * 2)
module, _, name = sys.argv[2].partition(".")
decode = getattr(import_module("runners.uploads." + module), name or "decode")
data = Path(sys.argv[1]).read_bytes()
before = peak()
try:
    answer = list(decode(data).shape)
except (UnreadableAudio, UnreadableImage) as error:
    answer = str(error)
print(json.dumps([answer, peak() - before]))
"""


@pytest.fixture
def decoded(tmp_path: Path) -> Any:  # noqa: ANN401 - a function
    def decode(data: bytes, function: str = "images") -> tuple[list[int] | str, int]:
        """What is answered, and how many MiB more than before the process has had"""
        path = tmp_path / "upload"
        path.write_bytes(data)
        done = subprocess.run(
            [sys.executable, "-c", _DECODE, str(path), function, str(MOST_SECONDS)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        answer, mib = json.loads(done.stdout)
        return answer, mib

    return decode
