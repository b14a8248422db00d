"""The process that builds one plan: SOURCE RECIPE GPU TARGET TIMING_CACHE PLUGINS, progress is on stderr"""

import ctypes
import signal
import sys
from pathlib import Path

from ...errors import KushiError
from .building import build
from .cuda import gpu
from .kept import remove_unused
from .library import load_plugins
from .recipe import Recipe
from .writing import memory_of, write_file

__all__ = ["main"]

# PR_SET_PDEATHSIG
_DIES_WITH_PARENT = 1


def main(arguments: list[str]) -> int:
    """The exit code"""
    source, recipe, number, target, timing_cache, plugins = arguments
    ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)
    try:
        gpu(int(number)).enter()
        load_plugins(plugins)
        built = build(
            Path(source),
            Recipe.of_json(recipe),
            timing_cache=Path(timing_cache),
            progress=_say,
        )
        write_file(Path(target), memory_of(built.plan))
        remove_unused(Path(target))
    except (KushiError, OSError) as error:
        _say(str(error))
        return 1
    _say(f"built in {built.seconds:.0f} s")
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
