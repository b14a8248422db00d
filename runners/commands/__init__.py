"""The commands of `kushi`: a module for each, which loads what the command needs when it runs."""

from . import check, config, demo, export, init, inspect, new, optimize, serve, versions
from .command import Command

__all__ = ["COMMANDS", "Command"]

COMMANDS = (
    demo.COMMAND,
    new.COMMAND,
    init.COMMAND,
    serve.COMMAND,
    check.COMMAND,
    config.COMMAND,
    versions.COMMAND,
    export.COMMAND,
    optimize.COMMAND,
    inspect.COMMAND,
)
