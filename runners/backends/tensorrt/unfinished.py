"""
A plan that is to be built: meanwhile ONNX Runtime serves the ONNX file, on the same GPUs.

The build is a process of its own, so that what goes wrong in it ends nothing else.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...environment import environment_of_child
from ...errors import EngineFailed
from ...repository.messages import ModelConfig
from ..steps import NotYet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .cuda import Gpu
    from .files import PlanFiles

__all__ = ["Build", "Missing", "not_yet"]

_LOG = logging.getLogger(__name__)
_PROCESS = f"{__package__}.build_process"
_ROOT = Path(__file__).parents[3]
"""Where this package lies"""
_OF_PLANS = ("cc_model_filenames", "optimization", "platform")


@dataclass(frozen=True)
class Missing:
    """A plan that is not there for a GPU, and others of its kind"""

    target: Path
    owner: Gpu
    why: str


def not_yet(missing: Sequence[Missing], files: PlanFiles) -> NotYet:
    """What is raised where these plans have to be built first"""
    source = files.onnx
    assert source is not None  # noqa: S101 - without it there is nothing to build, which was said before
    why = missing[0].why
    names = " and for ".join(dict.fromkeys(plan.owner.name for plan in missing))
    return NotYet(
        f"{why}. A plan of '{source.name}' is built for {names}, and ONNX Runtime serves meanwhile",
        meanwhile=_meanwhile(files.config, source.name),
        works=[
            Build(
                [
                    source,
                    files.recipe.to_json(),
                    plan.owner.number,
                    plan.target,
                    files.timing_cache(plan.owner),
                    files.plugins,
                ],
                plan.target,
            )
            for plan in missing
        ],
        in_processes=(
            f"{why}. In processes of its own no plan is built: load the model once without 'kushi.isolate', or build "
            "the plan with 'kushi export --to tensorrt'"
        ),
    )


def _meanwhile(config: ModelConfig, onnx: str) -> ModelConfig:
    form = ModelConfig()
    form.CopyFrom(config)
    for field in _OF_PLANS:
        form.ClearField(field)
    for key in [key for key in form.parameters if not key.startswith("kushi.") or key.endswith(("_shapes", ".onnx"))]:
        del form.parameters[key]
    for tensor in (*form.input, *form.output):
        tensor.ClearField("is_shape_tensor")
    for group in form.instance_group:
        group.ClearField("profile")
    form.backend = "onnxruntime"
    form.default_model_filename = onnx
    return form


class Build:
    """Builds one plan; the same plan is not built twice at a time"""

    def __init__(self, arguments: Sequence[object], target: Path) -> None:
        """arguments: of `build_process`"""
        self.key = str(target)
        self._arguments = [str(argument) for argument in arguments]
        self._process: subprocess.Popen[str] | None = None
        self._cancelled = False
        self._lock = threading.Lock()

    def run(self) -> None:
        """Returns when the plan is where it belongs; raises where there is none"""
        with self._lock:
            if self._cancelled:
                return
            self._process = process = subprocess.Popen(  # noqa: S603 - a program of this package
                [sys.executable, "-m", _PROCESS, *self._arguments],
                env=environment_of_child(_ROOT),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
        last = ""
        with process:
            for line in process.stderr or ():
                last = line.strip() or last
                _LOG.info("%s: %s", Path(self.key).name, last)
        if process.returncode and not self._cancelled:
            raise EngineFailed(f"the plan '{self.key}' cannot be built: {last or f'exit code {process.returncode}'}")

    def cancel(self) -> None:
        """From any thread: what runs ends soon, and leaves no plan"""
        with self._lock:
            self._cancelled = True
            if self._process:
                self._process.kill()
