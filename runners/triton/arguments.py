"""The cli_args of a TritonRunner: the flags of tritonserver that concern models, as options of an engine."""

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import NoReturn

from ..errors import ConfigInvalid, Unsupported, about
from ..settings import SETTINGS, EngineOptions, read_settings
from ..settings.flags import add_flags, normalize_flags

__all__ = ["read_arguments"]

_OF_A_SERVER = (
    "engine.client_shared_memory",
    "engine.http.",
    "engine.io_threads",
    "engine.log.file",
    "engine.metrics.",
)


class _Parser(ArgumentParser):
    """Raises where a command line would end"""

    def error(self, message: str) -> NoReturn:
        raise ConfigInvalid(message)


def read_arguments(arguments: Sequence[str]) -> EngineOptions:
    """The options that the flags of a TritonRunner state"""
    with about("cli_args"):
        if isinstance(arguments, str):
            raise ConfigInvalid(f"expected a list of flags, got {arguments!r}")
        normal = normalize_flags(arguments)
        for argument in normal:
            if not argument.startswith("--"):
                raise ConfigInvalid(f"expected flags that begin with --, got {argument!r}")
        parser = _Parser(add_help=False, allow_abbrev=False)
        add_flags(parser)
        flags = vars(parser.parse_args(normal))
        for name, value in flags.items():
            if value is not None and not _concerns_models(SETTINGS[name].path):
                raise Unsupported(f"--{name.replace('_', '-')} concerns a server, and a TritonRunner starts none")
        return read_settings(flags).engine


def _concerns_models(path: str) -> bool:
    return path.startswith("engine.") and not path.startswith(_OF_A_SERVER)
