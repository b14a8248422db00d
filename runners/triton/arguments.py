"""The cli_args of a TritonRunner: the flags of tritonserver that concern models, as options of an engine."""

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import NoReturn

from ..errors import ConfigInvalid, Unsupported, about
from ..settings import EngineOptions, read_settings
from ..settings.flags import add_flags, normalize_flags

__all__ = ["read_arguments"]

_MODELS = frozenset(
    {
        "backend_config",
        "disable_auto_complete_config",
        "exit_on_error",
        "id",
        "load_model",
        "log_error",
        "log_format",
        "log_info",
        "log_verbose",
        "log_warning",
        "model_control_mode",
        "model_load_thread_count",
        "strict_readiness",
    }
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
            if value is not None and name not in _MODELS:
                raise Unsupported(f"--{name.replace('_', '-')} concerns a server, and a TritonRunner starts none")
        return read_settings(flags).engine
