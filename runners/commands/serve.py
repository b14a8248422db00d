"""kushi serve: model repositories, or a model file, behind the doors that the flags ask for"""

import time
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from ..errors import KushiError
from ..repository.discovery import bare_files
from ..settings import read_server
from ..settings.flags import add_flags, normalize_flags
from .command import Command

__all__ = ["COMMAND"]

_DRY_RUN = "--dry-run"


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "model", nargs="*", metavar="MODEL", help="a model repository or a file of a model, as --model-repository"
    )
    parser.add_argument(
        _DRY_RUN, action="store_true", help="say which models would be served and where, and end: nothing is opened"
    )
    add_flags(parser)


def _normalize(arguments: Sequence[str]) -> list[str]:
    others = [word for word in arguments if word != _DRY_RUN]
    return [*([_DRY_RUN] if len(others) < len(arguments) else []), *normalize_flags(others)]


def _run(arguments: dict[str, Any], parser: ArgumentParser) -> int:
    is_dry_run = arguments.pop("dry_run")
    repositories = [*(arguments.pop("model_repository") or []), *arguments.pop("model")]
    try:
        settings = read_server({**arguments, "model_repository": repositories or None})
    except KushiError as error:
        parser.error(str(error))
    if is_dry_run:
        from .dry_run import dry_run  # noqa: PLC0415 - protobuf, as below

        return dry_run(settings)
    from ..serve import serve  # noqa: PLC0415 - native code, which help and a wrong flag do without

    return serve(settings, time.monotonic())


COMMAND = Command(
    name="serve",
    summary="serve model repositories, or a model file",
    description=f"Serves every model of Triton-style repositories, or one file, {bare_files()}, under its stem.",
    epilog="Each flag can also be given as the environment variable in brackets; the flag wins. A flag of tritonserver "
    "whose feature does not exist yet is refused by its name.",
    add_arguments=_add_arguments,
    run=_run,
    normalize=_normalize,
)
