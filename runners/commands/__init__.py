"""The commands of `kushi`: a module for each, which loads what the command needs when it runs."""

from . import check, demo, export, inspect, new, optimize, serve, versions
from .command import Command

__all__ = ["COMMANDS", "Command"]

COMMANDS = (
    demo.COMMAND,
    new.COMMAND,
    serve.COMMAND,
    check.COMMAND,
    versions.COMMAND,
    export.COMMAND,
    optimize.COMMAND,
    inspect.COMMAND,
)
