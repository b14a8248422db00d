"""kushi config: the configuration of a model as it is in effect, with all that the server fills in"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import KushiError
from ..settings.kinds import BackendSettings
from .command import Command

if TYPE_CHECKING:
    from argparse import ArgumentParser

__all__ = ["COMMAND"]

_BACKEND_CONFIG = "--backend-config"


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="the directory of a model in its repository, also in a bucket, or a file of a model",
    )
    parser.add_argument(
        "--format",
        choices=("pbtxt", "json"),
        default="pbtxt",
        help="as in config.pbtxt, or as clients are told it. Default: %(default)s",
    )
    parser.add_argument(
        _BACKEND_CONFIG,
        action="append",
        default=[],
        metavar=BackendSettings().placeholder,
        help="setting of a backend, as for kushi serve",
    )
    parser.add_argument("--model-config-name", metavar="NAME", help="as for kushi serve")
    parser.add_argument("--backend-directory", metavar="DIR", help="as for kushi serve")


def _run(arguments: dict[str, Any], parser: ArgumentParser) -> int:
    logging.basicConfig(format="%(levelname)s: %(message)s", stream=sys.stderr)
    # native code and protobuf, which help does without
    from google.protobuf import json_format, text_format  # noqa: PLC0415 - see above

    from ..buckets.url import bucket_url  # noqa: PLC0415 - see above
    from ..completed_config import completed_config  # noqa: PLC0415 - see above
    from ..repository.discovery import add_directory  # noqa: PLC0415 - see above

    try:
        settings: Any = BackendSettings().read(arguments["backend_config"], _BACKEND_CONFIG)
        if arguments["backend_directory"]:
            add_directory(Path(arguments["backend_directory"]).absolute())
        # its own name, also where it is a link or "."
        stated = arguments["model"]
        model = stated if bucket_url(stated) else Path(os.path.abspath(stated))  # noqa: PTH100 - the names of links stay
        config = completed_config(model, settings, arguments["model_config_name"])
    except KushiError as error:
        sys.stderr.write(f"{parser.prog}: error: {error}\n")
        return 1
    if arguments["format"] == "json":
        sys.stdout.write(f"{json_format.MessageToJson(config, preserving_proto_field_name=True)}\n")
    else:
        sys.stdout.write(text_format.MessageToString(config))
    return 0


COMMAND = Command(
    name="config",
    summary="show the configuration of a model as it is in effect",
    description="Loads a model once, as a server does, which runs `auto_complete_config` and `initialize` of one in "
    "Python, and prints its configuration with all that is filled in.",
    epilog="",
    add_arguments=_add_arguments,
    run=_run,
)
