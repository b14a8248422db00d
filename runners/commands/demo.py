"""kushi demo: the reader of documents, served"""

import os
import shlex
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..environment import cache_directory, environment_with
from ..errors import KushiError
from ..settings import given_in_environment
from .command import Command
from .progress import say

__all__ = ["COMMAND"]

_DESCRIPTION = """\
Serves a service that reads the words of scans, photographs and PDFs. The first time its models are
downloaded, 32 MB, into the cache of this user.
"""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="the address to serve on. Default: %(default)s")
    parser.add_argument("--port", type=int, default=3000, help="Default: %(default)s")


def _run(arguments: dict[str, Any], parser: ArgumentParser) -> int:
    from ..new_service import check_needed, digest  # noqa: PLC0415 - the engine, which help does without

    try:
        check_needed()
        folder = cache_directory() / f"demo_{digest()}"
        if not folder.is_dir():
            _write(folder, lambda text: say(parser, text))
    except KushiError as error:
        say(parser, f"error: {error}")
        return 1
    host, port = arguments["host"], arguments["port"]
    url = f"http://{'localhost' if host in {'0.0.0.0', '::'} else f'[{host}]' if ':' in host else host}:{port}"  # noqa: S104
    say(parser, f"the reader of {folder}; `kushi new my_reader --from reader` makes one to change")
    say(
        parser,
        f"once it is ready: {url}, or curl -F document=@{shlex.quote(str(folder / 'letter.png'))} {url}/read/text",
    )
    os.chdir(folder)
    page = {} if given_in_environment("allow_playground") else {"KUSHI_ALLOW_PLAYGROUND": "true"}
    command = [sys.executable, "-m", "bentoml", "serve", "service:Kushi", "--host", host, "--port", str(port)]
    return os.execve(sys.executable, command, environment_with(**page))  # noqa: S606 - this interpreter


def _write(folder: Path, tell: Callable[[str], None]) -> None:
    from ..new_service import write_reader  # noqa: PLC0415 - as above

    try:
        write_reader(folder, tell)
    except KushiError:
        # another one may have written it meanwhile
        if not folder.is_dir():
            raise


COMMAND = Command(
    name="demo",
    summary="serve a reader of documents, to see how a service is",
    description=_DESCRIPTION,
    epilog="",
    add_arguments=_add_arguments,
    run=_run,
    formatter=RawDescriptionHelpFormatter,
)
