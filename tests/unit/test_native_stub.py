import os
import subprocess
import sys
from pathlib import Path

BINDINGS = Path(__file__).parents[2] / "native/crates/bindings"


def test_the_stub_of_the_native_module_is_what_the_module_has(tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    # the compiled file inside the package that maturin puts around it
    allowed.write_text("kushi_native.kushi_native\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "--allowlist", allowed, "kushi_native"],
        env=os.environ | {"MYPYPATH": str(BINDINGS)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
