"""
Types of TensorRT's Python module, made from the module itself: `python -m tests.tensorrt.stubs FOLDER [tensorrt_rtx]`.
That for RTX stands there as `tensorrt`, too: what is shared is checked against it.

The module in question is the one that can be imported; its libraries may stand in.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

__all__ = ["main"]

_VARIABLE = re.compile(r"bool: ")
_ANNOTATION = re.compile(r"(?<=[\[ (])bool\b(?!:)")


def main(folder: Path, name: str = "tensorrt") -> None:
    """Writes the types of `tensorrt` and `tensorrt_bindings` below `folder`, or those for RTX"""
    stubgen = Path(sys.executable).with_name("stubgen")
    module = f"{name}_bindings.{name}"
    subprocess.run([stubgen, "--quiet", "--inspect-mode", "-m", module, "-o", folder], check=True)
    made = folder / f"{name}_bindings" / f"{name}.pyi"
    made.write_text(_repaired(made.read_text("utf-8")), "utf-8")
    (folder / f"{name}_bindings" / "__init__.pyi").write_text(f"from .{name} import *\n\n__version__: str\n")
    for alias in {name, "tensorrt"}:
        (folder / alias).mkdir(exist_ok=True)
        (folder / alias / "__init__.pyi").write_text(f"from {module} import *\n\n__version__: str\n")


def _repaired(text: str) -> str:
    """Without signatures that Python does not have; `bool` is a data type in that module, and a class elsewhere"""
    lines = [line if _VARIABLE.match(line) else _ANNOTATION.sub("_Bool", line) for line in text.splitlines()]
    lines.insert(0, "from builtins import bool as _Bool")
    while True:
        try:
            ast.parse("\n".join(lines))
        except SyntaxError as error:
            at = (error.lineno or 1) - 1
            found = re.match(r"(\s*)def (\w+)\(", lines[at])
            if not found:
                raise
            lines[at] = f"{found[1]}def {found[2]}(self, *args, **kwargs): ..."
        else:
            return "\n".join([*lines, ""])


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
