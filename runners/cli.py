"""The command `kushi`: kushi serve --model-repository DIR, or kushi serve model.onnx; kushi export model.pt"""

import sys
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any, NoReturn

from ._version import __version__
from .errors import InvalidInput, KushiError
from .flags import add_flags, normalize_flags
from .serve import serve
from .settings import ServerSettings, read_settings

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and answers its exit code"""
    started = time.monotonic()
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["export"]:
        return _export(given[1:])
    parser, serving = _parsers()
    try:
        if given[:1] == ["serve"]:
            given = ["serve", *normalize_flags(given[1:])]
        flags = vars(parser.parse_args(given))
        if flags.pop("command") is None:
            parser.print_help()
            return 2
        settings = _settings(flags)
    except KushiError as error:
        serving.exit(2, f"kushi serve: error: {error}\n")
    return serve(settings, started)


class _Parser(ArgumentParser):
    """One line for a wrong command line, without the usage"""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def _parsers() -> tuple[ArgumentParser, ArgumentParser]:
    parser = _Parser(prog="kushi", description="A Triton-style model repository served at native speed.")
    parser.add_argument("--version", action="version", version=f"kushi {__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    serving = commands.add_parser(
        "serve",
        help="serve model repositories, or a model file",
        description="Serves every model of Triton-style repositories, or one file, *.onnx or *.ort, under its stem.",
        epilog="Each flag can also be given as the environment variable in brackets; the flag wins. A flag of "
        "tritonserver whose feature does not exist yet is refused by its name.",
        allow_abbrev=False,
    )
    serving.add_argument(
        "model", nargs="*", metavar="MODEL", help="a model repository or a file of a model, as --model-repository"
    )
    add_flags(serving)
    commands.add_parser("export", help="export a PyTorch model to ONNX")
    return parser, serving


def _export(arguments: Sequence[str]) -> int:
    from .export import command  # noqa: PLC0415 - a server starts without it

    parser = _Parser(prog="kushi export", allow_abbrev=False)
    command.add_flags(parser)
    try:
        return command.run(vars(parser.parse_args(arguments)))
    except (KushiError, OSError) as error:
        sys.stderr.write(f"kushi export: error: {error}\n")
        return 1


def _settings(flags: dict[str, Any]) -> ServerSettings:
    repositories = [*(flags.pop("model_repository") or []), *flags.pop("model")]
    settings = read_settings({**flags, "model_repository": repositories or None})
    if not settings.model_repository:
        raise InvalidInput("expected a model repository: --model-repository DIR, or a model file")
    if settings.load_model and settings.model_control_mode != "explicit":
        raise InvalidInput("Use of '--load-model' requires setting '--model-control-mode=explicit' as well.")
    if "*" in settings.load_model and len(settings.load_model) > 1:
        raise InvalidInput("Wildcard model name '*' must be the ONLY startup model if specified at all.")
    if not settings.allow_http and settings.http_socket is None and settings.local_socket is None:
        raise InvalidInput(
            "nothing to serve: HTTP is switched off by --allow-http=false, and no --http-socket or --local-socket is "
            "given"
        )
    if settings.local_socket is not None and settings.local_socket == settings.http_socket:
        raise InvalidInput(f"--local-socket and --http-socket are both {settings.local_socket}: choose two paths")
    return settings
