"""kushi new: a service to begin with, in a folder of its own"""

import shlex
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

from ..errors import KushiError
from .command import Command
from .progress import say

__all__ = ["COMMAND"]

_DESCRIPTION = """\
Writes a BentoML service: what clients may ask, what happens before and after the model, the repository of
its models, a test, and what an image of it needs.

  kushi new my_service                        with a small model, in the place of yours
  kushi new my_service --model resnet.onnx    with yours: pictures where it takes them, else arrays
  kushi new my_service --from reader          the reader of documents that `kushi demo` serves
"""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="a new folder, or an empty one; the service is named after it")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--model", metavar="FILE", help="a file of a model, or a folder of one as in a model repository; it is copied"
    )
    kind.add_argument("--from", dest="example", choices=("reader",), help="a whole service to change")


def _run(arguments: dict[str, Any], parser: ArgumentParser) -> int:
    from ..new_service import write_reader, write_service  # noqa: PLC0415 - the engine, which help does without

    folder = Path(arguments["folder"])
    try:
        if arguments["example"]:
            write_reader(folder, lambda text: say(parser, text))
        else:
            write_service(folder, Path(arguments["model"]) if arguments["model"] else None)
    except KushiError as error:
        say(parser, f"error: {error}")
        return 1
    sys.stdout.write(
        f"{folder} is written. Next:\n\n  cd {shlex.quote(str(folder))} && bentoml serve\n\nIts README.md says more.\n"
    )
    return 0


COMMAND = Command(
    name="new",
    summary="write a BentoML service to begin with",
    description=_DESCRIPTION,
    epilog="",
    add_arguments=_add_arguments,
    run=_run,
    formatter=RawDescriptionHelpFormatter,
)
