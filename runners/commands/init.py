"""kushi init: a model file becomes a model of a repository, with a configuration to begin with"""

from __future__ import annotations

import logging
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import KushiError
from ..repository.discovery import bare_files
from .command import Command

if TYPE_CHECKING:
    from argparse import ArgumentParser

__all__ = ["COMMAND"]

_MOST_BATCH = 2**31 - 1


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help=f"a model: {bare_files()}")
    parser.add_argument(
        "--repository", default="model_repository", metavar="DIR", help="where it goes. Default: %(default)s"
    )
    parser.add_argument("--name", help="of the model. Default: that of the file")
    parser.add_argument(
        "--max-batch-size",
        type=int,
        default=32,
        metavar="N",
        help="rows that are executed together at most, where the model takes batches. Default: %(default)s",
    )


def _run(arguments: dict[str, Any], parser: ArgumentParser) -> int:
    if not 1 <= arguments["max_batch_size"] <= _MOST_BATCH:
        parser.error(f"--max-batch-size: expected 1 to {_MOST_BATCH}, got {arguments['max_batch_size']}")
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.ERROR, stream=sys.stderr)
    from ..export.starter import write_starter  # noqa: PLC0415 - the engine, which help does without

    file, repository = Path(arguments["file"]), Path(arguments["repository"])
    try:
        place = write_starter(file, repository, arguments["name"] or file.stem, arguments["max_batch_size"])
    except KushiError as error:
        sys.stderr.write(f"{parser.prog}: error: {error}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"{parser.prog}: error: '{repository}' cannot be written: {error.strerror or error}\n")
        return 1
    sys.stdout.write(
        f"{place.directory} is written, and loads. Next: change {place.config}, then\n\n"
        f"  kushi serve {shlex.quote(str(repository))}\n"
    )
    return 0


COMMAND = Command(
    name="init",
    summary="make a model file a model of a repository",
    description="Copies a file to where a model repository has it, and writes a config.pbtxt to begin with: what the "
    "file says of itself, batches, and what people change first.",
    epilog="",
    add_arguments=_add_arguments,
    run=_run,
)
