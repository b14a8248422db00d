"""`python DIRECTORY FD`: runs a Python model for the server at the other end of a socket; DIRECTORY is this one"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

# a package of its own name: the one around it need not be importable where the model runs
_NAME = "kushi_worker"


def _package() -> None:
    here = Path(__file__).resolve().parent
    spec = importlib.util.spec_from_file_location(_NAME, here / "__init__.py", submodule_search_locations=[str(here)])
    if spec is None or spec.loader is None:
        raise SystemExit(f"{here} is no package")
    package = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = package
    spec.loader.exec_module(package)


def _check_numpy() -> None:
    try:
        importlib.import_module("numpy")
    except ImportError as error:
        raise SystemExit(f"'{sys.executable}' has no NumPy, which every Python model needs: {error}") from None


def main() -> None:
    """The way into the loop"""
    # that of this file: its modules have names that a model may use for its own
    del sys.path[0]
    _check_numpy()
    _package()
    channel = importlib.import_module(f"{_NAME}.channel")
    loop = importlib.import_module(f"{_NAME}.loop")
    importlib.import_module(f"{_NAME}.memory").keep()
    importlib.import_module(f"{_NAME}.pb_utils").install()
    if not loop.Worker(channel.Channel(int(sys.argv[1]))).run():
        # nobody is there to hear of an error; threads of the model may never end
        os._exit(0)


if __name__ == "__main__":
    main()
