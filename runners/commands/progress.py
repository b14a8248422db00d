"""What a command is about, on standard error"""

import logging
import sys
from argparse import ArgumentParser

__all__ = ["say", "show_progress"]


def show_progress(package: str) -> None:
    """Prints what the modules of `package` log"""
    logger = logging.getLogger(package)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False


def say(parser: ArgumentParser, text: str) -> None:
    """A line under the name of the command"""
    sys.stderr.write(f"{parser.prog}: {text}\n")
    sys.stderr.flush()
