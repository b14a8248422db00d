"""The commands of `kushi`: a module for each, which loads what the command needs when it runs."""

from . import check, export, inspect, optimize, serve
from .command import Command

__all__ = ["COMMANDS", "Command"]

COMMANDS = (serve.COMMAND, export.COMMAND, optimize.COMMAND, inspect.COMMAND, check.COMMAND)
