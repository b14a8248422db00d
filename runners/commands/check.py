"""kushi check: one line for each model of a repository, would it be served or not, and why"""

import json
import logging
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from ..errors import KushiError
from .command import Command

__all__ = ["COMMAND"]


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("repository", nargs="+", metavar="DIR", help="a model repository, or a file of a model")
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="of the output. Default: %(default)s"
    )


def _run(arguments: dict[str, Any], parser: ArgumentParser) -> int:
    from ..checking import check  # noqa: PLC0415 - protobuf, which help does without

    logging.basicConfig(format="%(levelname)s: %(message)s", stream=sys.stderr)
    try:
        findings = check([Path(path) for path in arguments["repository"]])
    except KushiError as error:
        parser.error(str(error))
    if arguments["format"] == "json":
        rows = [
            {
                "name": one.name,
                "served": one.served,
                "backend": one.backend,
                "versions": list(one.versions),
                "reason": one.reason,
            }
            for one in findings
        ]
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
    else:
        for one in findings:
            versions = ", ".join(map(str, one.versions))
            text = f"served, {one.backend}, version {versions}" if one.served else f"not served: {one.reason}"
            sys.stdout.write(f"{one.name}: {text}\n")
    return 0 if all(one.served for one in findings) else 1


COMMAND = Command(
    name="check",
    summary="say which models would be served",
    description="Reads and checks every configuration of model repositories, and prints one line for each model. No "
    "model file is opened. The exit code is 1 where a model would not be served.",
    epilog="",
    add_arguments=_add_arguments,
    run=_run,
)
