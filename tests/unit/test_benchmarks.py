"""The benchmarks as someone finds them who never installed what only they need"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def without_matplotlib(*arguments: str) -> subprocess.CompletedProcess[str]:
    script = (
        "import runpy, sys\n"
        "sys.modules['matplotlib'] = None\n"
        f"sys.argv[1:] = {list(arguments)!r}\n"
        "runpy.run_module('benchmarks', run_name='__main__')"
    )
    return subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)


def test_help_needs_no_plotting() -> None:
    done = without_matplotlib("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--render" in done.stdout


def test_a_plot_that_cannot_be_drawn_is_told_before_anything_is_measured() -> None:
    for arguments in ([], ["--quick"], ["--render"]):
        done = without_matplotlib(*arguments)
        assert done.returncode == 1
        assert done.stderr == "the plot needs matplotlib, which is not installed here: `make bench` installs it\n"
