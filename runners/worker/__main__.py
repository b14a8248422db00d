"""`python DIRECTORY FD`: runs a Python model for the server at the other end of a socket; DIRECTORY is this one"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

# of the package in this directory
_NAME = "kushi_worker"
_IMPORTABLE = Path(__file__).resolve().parent / "importable"


def _check_numpy() -> None:
    try:
        importlib.import_module("numpy")
    except ImportError as error:
        raise SystemExit(f"'{sys.executable}' has no NumPy, which every Python model needs: {error}") from None


def main() -> None:
    """The way into the loop"""
    # not this directory: its modules have names that a model may use for its own
    sys.path[0] = str(_IMPORTABLE)
    _check_numpy()
    channel = importlib.import_module(f"{_NAME}.channel")
    loop = importlib.import_module(f"{_NAME}.loop")
    importlib.import_module(f"{_NAME}.memory").keep()
    importlib.import_module(f"{_NAME}.pb_utils").install()
    worker = loop.Worker(channel.Channel(int(sys.argv[1])))
    try:
        has_been_ended = worker.run()
    except BaseException:
        # threads of the model, and what it has registered for the end, may keep the process: the server does not wait
        worker.close()
        raise
    if not has_been_ended:
        # nobody is there to hear of an error; threads of the model may never end
        os._exit(0)


if __name__ == "__main__":
    main()
