"""What a command is about, on standard error"""

import logging
import sys

__all__ = ["show_progress"]


def show_progress(package: str) -> None:
    """Prints what the modules of `package` log"""
    logger = logging.getLogger(package)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
