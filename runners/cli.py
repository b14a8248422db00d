"""The command `kushi`: kushi serve --model-repository DIR, or kushi serve FILE; kushi export model.pt"""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import NoReturn

from ._version import __version__
from .commands import COMMANDS
from .errors import KushiError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and answers its exit code"""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser, parsers = _parsers()
    for command in COMMANDS:
        if given[:1] == [command.name]:
            own = parsers[command.name]
            try:
                words = command.normalize(given[1:])
            except KushiError as error:
                own.error(str(error))
            return command.run(vars(own.parse_args(words)), own)
    parser.parse_args(given)
    parser.print_help()
    return 2


class _Parser(ArgumentParser):
    """One line for a wrong command line, without the usage"""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def _parsers() -> tuple[_Parser, dict[str, _Parser]]:
    """That of `kushi`, and those of its commands by their names"""
    parser = _Parser(prog="kushi", description="A Triton-style model repository served at native speed.")
    parser.add_argument("--version", action="version", version=f"kushi {__version__}")
    words = parser.add_subparsers(title="commands", metavar="COMMAND")
    parsers = {}
    for command in COMMANDS:
        parsers[command.name] = words.add_parser(
            command.name,
            help=command.summary,
            description=command.description,
            epilog=command.epilog,
            formatter_class=command.formatter,
            allow_abbrev=False,
        )
        command.add_arguments(parsers[command.name])
    return parser, parsers
